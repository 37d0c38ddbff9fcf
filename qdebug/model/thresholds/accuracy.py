"""Thresholds of `qdebug accuracy`: which loss is too large, and which change of a history counts as worse."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Accuracy: what is a loss", decides="limit")

ACCURACY_MAX_LOSS = threshold(
    "ACCURACY_MAX_LOSS",
    0.005,
    unit="share of the samples",
    why="The whole interval of a loss in top-1 or top-5 must be below this. For other metrics, it is a share "
    "of the reference's value.",
    source="chosen: the gate of quantized classifiers that is in common use, half a percent",
)
HISTORY_MAX_SQNR_DROP = threshold(
    "HISTORY_MAX_SQNR_DROP",
    1.0,
    unit="dB",
    why="A node is worse than in its history if its SQNR is lower than in its best good run by more than this.",
    source="chosen: a quarter more noise power; the same build gives the same dB to the last digit",
)
HISTORY_SQNR_CEILING = threshold(
    "HISTORY_SQNR_CEILING",
    100.0,
    unit="dB",
    why="Changes above this SQNR are ignored, since float32 itself is accurate to 120 to 144 dB.",
    source="derived: an error of 1e-5 of the signal, a hundred times the rounding of float32",
)
HISTORY_MAX_SCORE_DRIFT = threshold(
    "HISTORY_MAX_SCORE_DRIFT",
    0.05,
    unit="share of the first good run's value",
    why="The mean of the winners' scores has drifted if it differs by more from the first good run of a history, even "
    "if all winners are the same.",
    source="chosen: 0.47 that became 0.54 with the same winners, which users report, is 0.15",
)
