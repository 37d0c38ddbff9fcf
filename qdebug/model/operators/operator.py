"""What is known of an operator: one row of the table, and the few rules that follow from its traits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType

from qdebug.model.graph import AttrValue

__all__ = ["Count", "Domain", "Gate", "Move", "Operator", "PackedWeight", "RealForm", "Sums"]


class Move(Enum):
    """How an operator picks, repeats and arranges the elements of its inputs."""

    TRANSPOSE = auto()
    """Turns dimensions."""
    TO_BLOCKS = auto()
    """Arranges channels in blocks."""
    FROM_BLOCKS = auto()
    """Undoes that."""
    RESHAPE = auto()
    """Gives the elements in the same order in dimensions of its own."""
    UNSQUEEZE = auto()
    """Puts dimensions of extent 1 in."""
    SQUEEZE = auto()
    """Takes dimensions of extent 1 out."""
    SLICE = auto()
    """Takes a range of places along axes."""
    GATHER = auto()
    """Picks places along an axis by indices, whose dimensions take the place of the axis."""
    JOIN = auto()
    """Puts its inputs one after the other along an axis."""
    OTHER = auto()
    """Repeats, splits or passes them."""


class Count(Enum):
    """The kind of a result that is never in codes, even where the inputs are."""

    COMPARISON = auto()
    """Which of two elements is the larger, or whether they are equal."""
    EXTENTS = auto()
    """The shape of an input."""
    OTHER = auto()
    """Indices, sizes or truth values."""


class Sums(Enum):
    """What each element of a result is the sum of, which says how many terms it has."""

    FILTER = auto()
    """Products of the data in a window and a filter."""
    SCATTER = auto()
    """Products that a filter spreads over the result; how many meet in one element depends on its place."""
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
    """The operator on real numbers behind one that reads scales and zero points beside its data.

    Args:
        op: The operator on real numbers.
        data: Positions of its inputs among those of the quantized operator.
        out: Position of the scale of its output, which the zero point follows.
        step: Where there are any number of inputs: the distance from each to the next, from the one in `data` on.
    """

    op: str
    data: tuple[int, ...]
    out: int | None = None
    step: int = 0

    def positions(self, count: int) -> tuple[int, ...]:
        """Return the positions of the data of a node with so many inputs."""
        return tuple(range(self.data[0], count, self.step)) if self.step else self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The numbers of which a function of one element gives a finite number.

    Args:
        function: What the function is called.
        low: The least of them.
        high: The largest.
        ends: Whether these two are among them.
    """

    function: str
    low: float = -math.inf
    high: float = math.inf
    ends: bool = True

    def holds(self, value: float) -> bool:
        """Tell whether the function gives a finite number of a finite value, but for overflow."""
        return self.low <= value <= self.high if self.ends else self.low < value < self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The gate of an activation that is defined as its input times a gate.

    Args:
        op: The operator that computes the gate.
        attrs: Its attributes.
        factor: Attribute of the activation that its input is multiplied by before the gate; empty for none.
        usual: That factor where the attribute is left out.
    """

    op: str
    attrs: Mapping[str, AttrValue] = field(default_factory=lambda: MappingProxyType({}))
    factor: str = ""
    usual: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A weight that is packed codes of a few bits, with a scale for each block.

    Args:
        layout: "columns", "levels" or "table", see `qdebug.replay.blockwise_weight`.
        inputs: Positions of its codes, its scales and its zero points.
    """

    layout: str
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator and its traits; an operator that is not in the table has none."""

    name: str  # as ONNX or ONNX Runtime names it
    plain: str = ""  # the operator without how it is computed: Conv for QLinearConv
    family: str = ""  # the same for operators that can stand for each other, as Gemm and MatMul
    words: str = ""  # what other frameworks call it, in lower case without underscores, separated by spaces
    real: RealForm | None = None  # its form on real numbers if it carries scales; None otherwise

    moves: Move | None = None  # how it picks, repeats and arranges elements, if it does that and computes nothing
    keeps_values: bool = False  # stands for the same real numbers as its first input, be it in another format
    moves_channels: bool = False  # moves elements between channels and extents
    selects: bool = False  # makes its first output of elements that it reads, chosen by their values or their places
    reduces: bool = False  # takes axes out, or leaves them with extent 1
    picks_index: bool = False  # gives the places of elements that it picks along an axis
    default_axis: int = 0  # the axis that it works along where the node states none
    indices_beside: bool = False  # its outputs after the first are indices
    counts: Count | None = None  # what it gives, if that is never in codes, whatever it reads
    exact: bool = False  # computes something that is never rounded
    casts: bool = False  # gives the same numbers in another data type
    constant: bool = False  # gives the value of an attribute
    reads_nothing: bool = False  # has no inputs
    holds_nodes: bool = False  # runs nodes of its own, which are not part of the graph

    elementwise: bool = False  # each element depends on one element of each input, broadcast to the result
    domain: Domain | None = None  # of which elements of its first input it gives a finite number; None for all
    through_exp: bool = False  # usually computed by the exponential of its input, which may overflow on the way
    raises: bool = False  # raises its first input to the power of its second
    sums: Sums | None = None  # what each element of its result is a sum of; None if of nothing, or if that is not known
    adds: bool = False  # each element is a sum or a difference of one element of each operand
    neutral: float | None = None  # the constant operand that changes nothing; None if there is none
    commutes: bool = False  # the order of its operands does not matter
    scales_channels: bool = False  # multiplies each channel by one constant and adds another
    activation: bool = False  # an element-wise function that backends compute along with the node before
    least: float | None = None  # the least value that it lets through, if that is fixed
    bounded: bool = False  # clamps to its attributes `min` and `max`, or to its inputs 1 and 2
    contracts: bool = False  # its results are no farther apart than what it reads
    parameters: tuple[str, ...] = ()  # its attributes, in the order of `activation_params` (fused_activation.cc)
    gate: Gate | None = None  # what it multiplies its input by, if it is defined so
    along_axis: bool = False  # works along its attribute `axis`, or from it on: places of the axes before it do not mix
    hides_low: bool = False  # what lies far below the largest element along its axis counts for nothing
    rounds_like_one: bool = False  # its result is rounded like a number of the size of 1, however small it is
    real_inside: bool = False  # computes with real numbers even where it reads and gives integers
    windowed: bool = False  # computes over windows of the dimensions after the channels
    resizes: bool = False  # changes the extents of those dimensions by interpolation
    ordered: bool = False  # knows its dimensions by their place: what it reads has the order that the operator defines
    recurrent: bool = False  # runs over a sequence with a state
    gives_scores: bool = False  # classifiers end in it

    quantizes: bool = False  # makes codes of real numbers by a given scale
    dequantizes: bool = False  # makes real numbers of codes
    fake_quantizes: bool = False  # rounds real numbers to those that codes stand for
    gives_scale: bool = False  # gives codes together with the scale and zero point that it has chosen for them
    chooses_scale: bool = False  # rounds its data to codes of a scale chosen by their range
    accumulates: bool = False  # adds up or multiplies all elements along an axis up to each one
    takes_codes: bool = False  # computes on codes with scales of its own, which are no part of the graph's quantization
    sums_codes: bool = False  # gives sums of products of codes, and leaves it to others to make real numbers of them
    reads_state: bool = False  # gives what was written to a state at the step before
    writes_state: bool = False  # keeps its last input in a state
    scales_sums: bool = False  # makes real numbers of such sums itself
    packed: PackedWeight | None = None  # its weight, if that is codes of a few bits with a scale for each block
    unit: str = ""  # how it is computed between codes, a `Unit.kind`; empty if that is not known
    folds: bool = False  # integer backends fold it with the DequantizeLinear before and the QuantizeLinear after
    forms: tuple[str, ...] = ()  # arithmetics on codes that are known for this operator alone
    in_codes: tuple[int, ...] = ()  # inputs in the codes of the first, where that is in codes: bounds, fillings

    data: tuple[int, ...] | None = None  # inputs whose elements go into its result; () for any number
    bias: int | None = None  # which input is the bias of a product
    added: int | None = None  # which input is added to its result
    divisor: int | None = None  # which input it divides by: it gives no number where that is 0
    mask: int | None = None  # which input is a mask whose ones are counted as the second output (ContribOperators.md)
    titles: tuple[str, ...] = ()  # what its inputs are called where they are constants, in order
    places: tuple[int, ...] = ()  # where the inputs stand that its plain operator has titles for, if not in their order

    @property
    def product(self) -> bool:
        """Whether it sums products of data and a weight, both real numbers."""
        return self.sums in _PRODUCTS

    @property
    def transposes(self) -> bool:
        """Whether it turns dimensions."""
        return self.moves is Move.TRANSPOSE

    @property
    def joins(self) -> bool:
        """Whether it puts its inputs one after the other along an axis."""
        return self.moves is Move.JOIN

    @property
    def reshapes(self) -> bool:
        """Whether it gives the same elements in the same order, in other dimensions."""
        return self.moves in (Move.RESHAPE, Move.UNSQUEEZE, Move.SQUEEZE)

    @property
    def arranges(self) -> bool:
        """Whether it gives the same elements, each once, in another order or other dimensions."""
        return self.transposes or self.reshapes

    @property
    def turns(self) -> bool:
        """Whether it turns dimensions, or arranges channels in blocks."""
        return self.moves in (Move.TRANSPOSE, Move.TO_BLOCKS, Move.FROM_BLOCKS)

    @property
    def clamps(self) -> bool:
        """Whether it holds its input to an interval, and changes nothing inside."""
        return self.least is not None or self.bounded

    @property
    def extreme(self) -> bool:
        """Whether it gives the largest or the smallest of its operands, element by element."""
        return self.selects and self.commutes

    @property
    def goes_into_weights(self) -> bool:
        """Whether backends fold it, with a constant, into the weight and the bias of the node before."""
        return self.scales_channels or self.neutral is not None

    @property
    def adds_term(self) -> bool:
        """Whether it adds a constant to its input whichever of the two comes first, as a bias is added."""
        return self.neutral == 0 and self.commutes

    @property
    def spatial(self) -> bool:
        """Whether it tells channels from the dimensions after them."""
        return self.windowed or self.resizes or self.moves_channels

    @property
    def picked_by(self) -> tuple[int, ...]:
        """Which inputs say the places that it picks."""
        return _PICKED_BY.get(self.moves, ()) if self.moves else ()

    @property
    def folded_before(self) -> bool:
        """Whether backends may compute it along with the node before, by constants or as an activation."""
        return self.goes_into_weights or self.activation

    @property
    def leaves_scale(self) -> bool:
        """Whether an error that it reads is as large in its result, whatever constants it reads beside it."""
        return self.adds or self.clamps or self.extreme or self.converts_codes

    @property
    def reads_by_place(self) -> bool:
        """Whether what it gives hangs on the order of dimensions, and no framework has another order for it."""
        return self.moves is Move.RESHAPE or self.recurrent or (self.ordered and self.sums is Sums.MATRIX)

    @property
    def rounds_by_element(self) -> bool:
        """Whether each element is rounded in proportion to the one element of each input that it is made of."""
        known = self.exact or self.adds or self.casts or self.moves is not None
        return known or self.neutral is not None or self.least is not None

    @property
    def rounds_nothing(self) -> bool:
        """Whether there is one right result in the data type of what it reads."""
        return self.moves is not None or self.keeps_values or self.selects or self.exact

    @property
    def own_dimensions(self) -> bool:
        """Whether its result has dimensions of its own, of which the layout of its input says nothing."""
        return self.moves in (Move.RESHAPE, Move.UNSQUEEZE) or self.sums is Sums.MATRIX

    @property
    def converts_codes(self) -> bool:
        """Whether it only makes codes of real numbers by a given scale, or real numbers of codes."""
        return self.quantizes or self.dequantizes

    @property
    def changes_format(self) -> bool:
        """Whether it gives what it reads in another format, be it of codes or another data type."""
        return self.converts_codes or self.gives_scale or self.casts

    @property
    def gives_codes(self) -> bool:
        """Whether integers that it gives may be codes, or sums of codes."""
        scaled = self.real is not None and not self.dequantizes
        return scaled or self.takes_codes or self.fake_quantizes

    @property
    def rescales(self) -> bool:
        """Whether it needs scales between codes: it does more than to move codes, or to choose among them."""
        return self.unit in _RESCALES

    @property
    def passes_codes(self) -> bool:
        """Whether what it gives are codes of the scale of its first input, where that is in codes."""
        selected = self.selects and self.data == (0,) and not self.picks_index
        return self.moves is not None or self.resizes or selected

    @property
    def takes_clamp(self) -> bool:
        """Whether a clamp that follows goes into it: on codes it only moves the ends of the range."""
        return self.unit in _CLAMPED

    @property
    def channels_last(self) -> bool:
        """Whether a runtime has made it read and write channels last."""
        return self.name.startswith("Nhwc")


_PICKED_BY = {Move.SLICE: (1, 2), Move.GATHER: (1,)}
"""The inputs that say the places."""
_PRODUCTS = (Sums.FILTER, Sums.SCATTER, Sums.MATRIX)
_RESCALES = frozenset(
    {"conv", "linear", "add", "sub", "mul", "div", "squared_difference", "lookup", "softmax"}
    | {"reduce_mean", "average_pool", "global_average_pool"}
)
"""Kinds of units that need scales."""
_CLAMPED = frozenset({"conv", "linear", "add", "sub", "mul", "div", "average_pool"})
"""Kinds of units that a clamp goes into."""
