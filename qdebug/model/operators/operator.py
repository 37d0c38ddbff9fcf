"""The traits of an operator: one row of the table, and the rules derived from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType

from qdebug.model.graph import AttrValue

__all__ = ["Count", "Domain", "Gate", "Move", "Operator", "PackedWeight", "RealForm", "Sums"]


class Move(Enum):
    """How an operator selects, repeats and arranges the elements of its inputs."""

    TRANSPOSE = auto()
    """Permutes dimensions."""
    TO_BLOCKS = auto()
    """Groups channels into blocks (layout NCHWc)."""
    FROM_BLOCKS = auto()
    """Undoes the grouping into blocks."""
    RESHAPE = auto()
    """Keeps the order of elements but changes the dimensions."""
    UNSQUEEZE = auto()
    """Inserts dimensions of extent 1."""
    SQUEEZE = auto()
    """Removes dimensions of extent 1."""
    SLICE = auto()
    """Selects a range of positions along axes."""
    GATHER = auto()
    """Selects positions along an axis by indices, whose dimensions replace the axis."""
    JOIN = auto()
    """Concatenates its inputs along an axis."""
    OTHER = auto()
    """Repeats, splits or passes elements."""


class Count(Enum):
    """The kind of a result that is never quantized, even if the inputs are."""

    COMPARISON = auto()
    """Whether an element is larger than, smaller than or equal to another one."""
    EXTENTS = auto()
    """The shape of an input."""
    OTHER = auto()
    """Indices, sizes or truth values."""


class Sums(Enum):
    """The terms that are summed for each element of a result. They determine the number of terms."""

    FILTER = auto()
    """Products of the data in a window and a filter."""
    SCATTER = auto()
    """Products that a filter spreads over the result. The number of terms per element depends on its position."""
    MATRIX = auto()
    """Products of a row and a column."""
    WINDOW = auto()
    """The elements of a window."""
    AXES = auto()
    """All elements along some axes."""
    OPERANDS = auto()
    """One element of each operand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealForm:
    """The float operator that a quantized operator implements.

    Args:
        op: The float operator.
        data: Positions of its inputs among the inputs of the quantized operator.
        out: Position of the scale of its output, which the zero point follows.
        step: Distance between the inputs, which start at the position in `data`, if their number varies; 0 otherwise.
    """

    op: str
    data: tuple[int, ...]
    out: int | None = None
    step: int = 0

    def positions(self, count: int) -> tuple[int, ...]:
        """Return the positions of the float operator's inputs in a node with the given number of inputs."""
        return tuple(range(self.data[0], count, self.step)) if self.step else self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The interval on which a function of one element is finite.

    Args:
        function: Name of the function.
        low: Lower end.
        high: Upper end.
        includes_ends: Whether the function is finite at the ends.
    """

    function: str
    low: float = -math.inf
    high: float = math.inf
    includes_ends: bool = True

    def contains(self, value: float) -> bool:
        """Return whether the function is finite at a finite value, disregarding overflow."""
        return self.low <= value <= self.high if self.includes_ends else self.low < value < self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The gate of an activation that is defined as its input times a gate.

    Args:
        op: The operator that computes the gate.
        attrs: Its attributes.
        factor: Attribute of the activation that multiplies the gate's input; empty without one.
        default_factor: Default of that attribute.
    """

    op: str
    attrs: Mapping[str, AttrValue] = field(default_factory=lambda: MappingProxyType({}))
    factor: str = ""
    default_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A weight stored as packed codes of a few bits, with one scale per block.

    Args:
        layout: "columns", "levels" or "table", see `qdebug.replay.blockwise_weight`.
        inputs: Positions of its codes, its scales and its zero points.
    """

    layout: str
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator and its traits. An operator that is not in the table does not have any."""

    name: str  # as ONNX or ONNX Runtime names it
    plain: str = ""  # the mathematical operator: Conv for QLinearConv
    family: str = ""  # common name of interchangeable operators, such as Gemm and MatMul
    words: str = ""  # its names in other frameworks, in lower case without underscores, separated by spaces
    real: RealForm | None = None  # the float operator that it implements, if it has scales as inputs

    moves: Move | None = None  # how it selects, repeats and arranges elements, if it computes nothing
    keeps_values: bool = False  # its result equals its first input as real numbers, perhaps in another format
    moves_channels: bool = False  # moves elements between channels and spatial dimensions
    selects: bool = False  # its first output consists of input elements, selected by value or by index
    reduces: bool = False  # removes axes, or reduces their extent to 1
    picks_index: bool = False  # returns the indices of elements that it selects along an axis
    default_axis: int = 0  # the axis that it works along if the node states none
    indices_beside: bool = False  # its outputs after the first are indices
    counts: Count | None = None  # kind of its result, if that is never quantized: indices, extents, booleans
    exact: bool = False  # its result is never rounded
    casts: bool = False  # returns equal numbers in another data type
    constant: bool = False  # returns the value of an attribute
    reads_nothing: bool = False  # has no inputs
    holds_nodes: bool = False  # runs a subgraph, whose nodes are not part of the graph

    elementwise: bool = False  # each element depends on one element of each input, broadcast to the result
    domain: Domain | None = None  # interval of the first input on which the result is finite; None for all numbers
    through_exp: bool = False  # usually computed by the exponential of its input, which may overflow on the way
    is_power: bool = False  # computes its first input to the power of its second
    sums: Sums | None = None  # the terms that each result element sums; None if it sums none, or if unknown
    adds: bool = False  # each element is a sum or a difference of one element of each operand
    neutral: float | None = None  # constant operand that leaves the other operand unchanged; None without one
    commutes: bool = False  # the order of its operands does not matter
    scales_channels: bool = False  # multiplies each channel by one constant and adds another
    activation: bool = False  # an element-wise function that backends fuse into the preceding node
    least: float | None = None  # fixed lower bound to which it clamps; None without one
    bounded: bool = False  # clamps to its attributes `min` and `max`, or to its inputs 1 and 2
    contracts: bool = False  # never enlarges a difference of its inputs
    parameters: tuple[str, ...] = ()  # its attributes, in the order of `activation_params` (fused_activation.cc)
    gate: Gate | None = None  # its gate, if it is defined as its input times a gate
    along_axis: bool = False  # works along its attribute `axis`, or that axis and all later ones
    hides_small_values: bool = False  # elements far below the largest along its axis have no effect
    rounds_like_one: bool = False  # its result has the rounding error of a number near 1, however small it is
    real_inside: bool = False  # computes with real numbers even if its input and output are integers
    windowed: bool = False  # computes over windows of the dimensions after the channels
    resizes: bool = False  # resizes the dimensions after the channels by interpolation
    ordered: bool = False  # it defines the order of its inputs' dimensions
    recurrent: bool = False  # runs over a sequence with a state
    gives_scores: bool = False  # classifiers end with it
    gives_probabilities: bool = False  # its results along an axis are positive and sum to 1

    quantizes: bool = False  # converts real numbers to codes by a stated scale
    dequantizes: bool = False  # converts codes to real numbers
    fake_quantizes: bool = False  # rounds real numbers to the values of codes
    gives_scale: bool = False  # returns codes with the scale and zero point chosen for them
    chooses_scale: bool = False  # quantizes its data with a scale that it chooses by their range
    accumulates: bool = False  # computes cumulative sums or products along an axis
    takes_codes: bool = False  # computes on codes whose scales are not part of the graph's quantization
    sums_codes: bool = False  # returns integer sums of products of codes, which later nodes scale
    reads_state: bool = False  # returns the state written at the previous step
    writes_state: bool = False  # stores its last input as the state
    scales_sums: bool = False  # scales the integer sums itself
    packed: PackedWeight | None = None  # its weight, if that has few-bit codes with a scale per block
    unit: str = ""  # its kind of computation between codes, a `Unit.kind`; empty if unknown
    folds: bool = False  # integer backends fold it with the DequantizeLinear before it and the QuantizeLinear after it
    forms: tuple[str, ...] = ()  # forms of code arithmetic that only this operator has
    in_codes: tuple[int, ...] = ()  # inputs with the same quantization as the first, if any: bounds, fill values

    data: tuple[int, ...] | None = None  # positions of inputs whose elements enter its result; () for all
    bias: int | None = None  # position of the bias of a product
    added: int | None = None  # position of the input that is added to the result
    divisor: int | None = None  # position of the divisor; a divisor of 0 gives NaN or infinity
    mask: int | None = None  # position of a mask; the second output is its number of ones (ContribOperators.md)
    titles: tuple[str, ...] = ()  # names of its constant inputs, in order
    title_positions: tuple[int, ...] = ()  # inputs with the titles of its plain operator, if not in order

    @property
    def product(self) -> bool:
        """Whether it sums products of data and a weight, both real numbers."""
        return self.sums in _PRODUCTS

    @property
    def transposes(self) -> bool:
        """Whether it permutes dimensions."""
        return self.moves is Move.TRANSPOSE

    @property
    def joins(self) -> bool:
        """Whether it concatenates its inputs along an axis."""
        return self.moves is Move.JOIN

    @property
    def reshapes(self) -> bool:
        """Whether it only changes dimensions, not the order of elements."""
        return self.moves in (Move.RESHAPE, Move.UNSQUEEZE, Move.SQUEEZE)

    @property
    def arranges(self) -> bool:
        """Whether it returns each element exactly once, in a different order or shape."""
        return self.transposes or self.reshapes

    @property
    def permutes_dimensions(self) -> bool:
        """Whether it permutes dimensions, or groups channels into blocks or undoes that."""
        return self.moves in (Move.TRANSPOSE, Move.TO_BLOCKS, Move.FROM_BLOCKS)

    @property
    def clamps(self) -> bool:
        """Whether it clamps its input to an interval, and leaves values inside unchanged."""
        return self.least is not None or self.bounded

    @property
    def extreme(self) -> bool:
        """Whether it returns the largest or smallest of its operands, element by element."""
        return self.selects and self.commutes

    @property
    def goes_into_weights(self) -> bool:
        """Whether backends fold it, together with a constant, into the weight and bias of the preceding node."""
        return self.scales_channels or self.neutral is not None

    @property
    def adds_term(self) -> bool:
        """Whether it adds its operands in either order, so that a constant one acts as a bias."""
        return self.neutral == 0 and self.commutes

    @property
    def spatial(self) -> bool:
        """Whether it distinguishes channels from the dimensions after them."""
        return self.windowed or self.resizes or self.moves_channels

    @property
    def index_inputs(self) -> tuple[int, ...]:
        """Positions of its index inputs."""
        return _INDEX_INPUTS.get(self.moves, ()) if self.moves else ()

    @property
    def fuses_into_predecessor(self) -> bool:
        """Whether backends may fuse it into the preceding node, as an activation or into its constants."""
        return self.goes_into_weights or self.activation

    @property
    def preserves_error_size(self) -> bool:
        """Whether an error of an input has the same size in the result, whatever the constants are."""
        return self.adds or self.clamps or self.extreme or self.converts_codes

    @property
    def depends_on_dimension_order(self) -> bool:
        """Whether its result depends on the order of dimensions, so that frameworks do not change the order."""
        return self.moves is Move.RESHAPE or self.recurrent or (self.ordered and self.sums is Sums.MATRIX)

    @property
    def rounds_by_element(self) -> bool:
        """Whether each element is rounded in proportion to the input elements from which it is computed."""
        is_simple = self.exact or self.adds or self.casts or self.moves is not None
        return is_simple or self.neutral is not None or self.least is not None

    @property
    def rounds_nothing(self) -> bool:
        """Whether its result is exact in the data type of its input."""
        return self.moves is not None or self.keeps_values or self.selects or self.exact

    @property
    def has_own_dimensions(self) -> bool:
        """Whether the layout of its input does not determine the layout of its result."""
        return self.moves in (Move.RESHAPE, Move.UNSQUEEZE) or self.sums is Sums.MATRIX

    @property
    def converts_codes(self) -> bool:
        """Whether it only converts between real numbers and codes by a stated scale."""
        return self.quantizes or self.dequantizes

    @property
    def changes_format(self) -> bool:
        """Whether it only changes the format: codes or another data type."""
        return self.converts_codes or self.gives_scale or self.casts

    @property
    def gives_codes(self) -> bool:
        """Whether integers in its output may be codes, or sums of codes."""
        has_output_scale = self.real is not None and not self.dequantizes
        return has_output_scale or self.takes_codes or self.fake_quantizes

    @property
    def rescales(self) -> bool:
        """Whether it needs the scales of its codes, since it does more than move or select them."""
        return self.unit in _RESCALES

    @property
    def passes_codes(self) -> bool:
        """Whether its output has the quantization of its data, such as its first input, if these are quantized."""
        selects_data = self.selects and self.data in ((0,), (0, 2)) and not self.picks_index
        return self.moves is not None or self.resizes or selects_data

    @property
    def takes_clamp(self) -> bool:
        """Whether a following clamp can be fused into it, which for codes only narrows the range of the output."""
        return self.unit in _CLAMPED

    @property
    def channels_last(self) -> bool:
        """Whether a runtime converted it to channels-last inputs and outputs."""
        return self.name.startswith("Nhwc")


_INDEX_INPUTS = {Move.SLICE: (1, 2), Move.GATHER: (1,)}
"""Positions of index inputs, by kind of move."""
_PRODUCTS = (Sums.FILTER, Sums.SCATTER, Sums.MATRIX)
_RESCALES = frozenset(
    {"conv", "linear", "add", "sub", "mul", "div", "squared_difference", "lookup", "softmax"}
    | {"reduce_mean", "average_pool", "global_average_pool"}
)
"""Kinds of units that need the scales of their codes."""
_CLAMPED = frozenset({"conv", "linear", "add", "sub", "mul", "div", "average_pool"})
"""Kinds of units that can absorb a clamp."""
