"""The node list: what a row says follows the verdict."""

from dataclasses import replace

import pytest

from qdebug.compare.result.diagnosis import Diagnosis, FaultClass
from qdebug.tui.screens import ScreenId

pytestmark = pytest.mark.asyncio


async def test_a_node_of_the_diagnosis_is_not_called_within_once_the_verdict_is_known(make_app, make_session, settle):
    async with make_app(make_session(24)).run_test(size=(120, 40)) as pilot:
        main = await settle(pilot)
        nodes = main.views[ScreenId.NODES]

        def row():
            return nodes.render_line(3).text

        assert "within" in row()
        table, result = main.navigator.table, main.current.result
        fault = Diagnosis(
            fault=FaultClass.QUANTIZATION, kind=None, node=table.rows[2].node, op="Conv", tensor=table.rows[2].tensor,
            model_node=None, why="one scale", share={"out": 0.43},
        )  # fmt: skip
        table.conclude(replace(result, diagnosis=(fault,)))
        main.redraw()
        await pilot.pause()
        assert "43 % share" in row()
        assert "within" not in row()
