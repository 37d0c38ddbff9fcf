"""qdebug completion: scripts for shell completion of verbs, options and choices, generated from the parser."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from qdebug.cli.output import emit
from qdebug.cli.parser import Parser, add_common

__all__ = ["Completable", "fill_parser", "list_completables", "script"]

_DESCRIPTION = """\
Print a completion script for a shell. It completes the verbs, options and choices of
qdebug, and after --node the nodes of the recording on the command line."""

_EPILOG = """\
examples:
  qdebug completion bash > ~/.local/share/bash-completion/completions/qdebug
  qdebug completion zsh > "${fpath[1]}/_qdebug"
  qdebug completion fish > ~/.config/fish/completions/qdebug.fish"""


_NODE = "--node"
"""Option whose value is a node of a recording."""
_RECORDING = ".h5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completable:
    """The words that can follow a prefix of a command line.

    Args:
        words: The verb, and the action if it has several; () at the start.
        actions: Verbs or actions, with one line about each.
        options: Options, with one line about each.
        choices: Values by option, for options with a fixed set.
        node_options: Options whose value is the name of a node.
        arguments: Values of the positional argument, if it has a fixed set.
    """

    words: tuple[str, ...]
    actions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    node_options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def list_completables(parser: Parser, words: tuple[str, ...] = ()) -> list[Completable]:
    """Return the completions at each level of a command line, starting with the outermost level.

    Args:
        parser: The parser of a level.
        words: The words that lead to it.
    """
    actions: dict[str, str] = {}
    options: dict[str, str] = {}
    choices: dict[str, tuple[str, ...]] = {}
    arguments: tuple[str, ...] = ()
    nested_completables: list[Completable] = []
    for action in parser.with_arguments()._actions:  # noqa: SLF001  argparse cannot list its arguments otherwise
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  nor a public name for this type
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            for name, subparser in action.choices.items():
                actions[name] = helps.get(name, "")
                nested_completables += list_completables(subparser, (*words, name))
        elif action.option_strings:
            for option in action.option_strings:
                options[option] = action.help or ""
                values = action.choices or _metavar_values(str(action.metavar))
                if values:
                    choices[option] = tuple(map(str, values))
        elif action.choices is not None:
            arguments = tuple(map(str, action.choices))
    completable = Completable(
        words=words,
        actions=actions,
        options=options,
        choices=choices,
        node_options=tuple(option for option in options if option == _NODE),
        arguments=arguments,
    )
    return [completable, *nested_completables]


def _metavar_values(metavar: str) -> tuple[str, ...]:
    """Return the values that completion suggests for an option that accepts others too, by its metavar."""
    if metavar == "NAME[:key=value,...]":
        from qdebug.backends import BACKENDS, installed_backends

        return (*BACKENDS, *installed_backends())
    if metavar == "KIND":
        from qdebug.probe.models import PROBED

        return tuple(PROBED)
    return ()


def script(shell: str, parser: Parser) -> str:
    """Return the completion script for a shell.

    Args:
        shell: "bash", "zsh" or "fish".
        parser: The parser of the whole command line.
    """
    return _SHELLS[shell](list_completables(parser))


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("shell", nargs="?", choices=list(_SHELLS), metavar="SHELL", help="bash, zsh or fish")
    target.add_argument(
        "--nodes", type=Path, metavar="FILE", help="list the names of a recording's nodes, one per line"
    )
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.nodes is not None:
        emit("\n".join(_node_names(arguments.nodes)))
    else:
        from qdebug.cli.main import build_parser  # imported here, because `main` imports this module

        emit(script(arguments.shell, build_parser()))
    return 0


def _node_names(path: Path) -> list[str]:
    """Return the node names that a shell can complete: those without blanks, quotes and control characters."""
    from qdebug.cli.sources import open_source

    names = dict.fromkeys(node.name for node in open_source(path).graph.nodes)
    return [name for name in names if name.isprintable() and not set(name) & set(" '\"\\$`")]


_FIND_WORDS = """\
  local at word line=''
  for ((at = {first}; at < {current}; at++)); do
    word=${{{words}[at]}}
    case "$line $word" in
{cases}
    esac
  done
"""


def _verb_cases(levels: list[Completable]) -> str:
    """Return the branches of a shell `case` that recognize the verb and the action, and skip all other words."""
    return "\n".join(
        f"      {shlex.quote(' '.join(('', *level.words)))}) line={shlex.quote(' '.join(('', *level.words)))} ;;"
        for level in levels
        if level.words
    )


def _bash_script(levels: list[Completable]) -> str:
    find = _FIND_WORDS.format(first=1, current="COMP_CWORD", words="COMP_WORDS", cases=_verb_cases(levels))
    choice_cases, level_cases = [], []
    for level in levels:
        key = " ".join(("", *level.words))
        for option, values in level.choices.items():
            choice_cases.append(f"    {shlex.quote(f'{key} {option}')}) known={shlex.quote(' '.join(values))} ;;")
        options, next_words = " ".join(level.options), " ".join((*level.actions, *level.arguments))
        level_cases.append(
            f"    {shlex.quote(key)}) options={shlex.quote(options)} follow={shlex.quote(next_words)} ;;"
        )
    return "\n".join(
        (
            "# bash completion for qdebug; made by: qdebug completion bash",
            "_qdebug() {",
            find + "  local known='' options='' follow='' now=\"${COMP_WORDS[COMP_CWORD]}\"",
            "  COMPREPLY=()",
            '  case "$line ${COMP_WORDS[COMP_CWORD-1]}" in',
            *choice_cases,
            "  esac",
            *_node_lines("COMP_WORDS", "${COMP_WORDS[COMP_CWORD-1]}", "    known=$names"),
            '  case "$line" in',
            *level_cases,
            "  esac",
            "  if [[ -z $known ]]; then [[ $now == -* ]] && known=$options || known=$follow; fi",
            # Unquoted, so that bash splits at blanks, which no word contains. The bash of macOS lacks mapfile.
            '  [[ -z $known ]] || COMPREPLY=( $(compgen -W "$known" -- "$now") )',
            "}",
            "complete -o default -o bashdefault -F _qdebug qdebug\n",
        )
    )


def _zsh_script(levels: list[Completable]) -> str:
    find = _FIND_WORDS.format(first=2, current="CURRENT", words="words", cases=_verb_cases(levels))
    choice_cases, level_cases = [], []
    for level in levels:
        key = " ".join(("", *level.words))
        for option, values in level.choices.items():
            choice_cases.append(f"    {shlex.quote(f'{key} {option}')}) compadd -- {shlex.join(values)}; return ;;")
        options = " ".join(_zsh_entry(name, text) for name, text in level.options.items())
        texts = {**level.actions, **dict.fromkeys(level.arguments, "")}
        next_words = " ".join(_zsh_entry(name, text) for name, text in texts.items())
        level_cases.append(f"    {shlex.quote(key)}) options=({options}) follow=({next_words}) ;;")
    return "\n".join(
        (
            "#compdef qdebug",
            "# zsh completion for qdebug; made by: qdebug completion zsh",
            "_qdebug() {",
            find + "  local -a options follow",
            '  case "$line ${words[CURRENT-1]}" in',
            *choice_cases,
            "  esac",
            *_node_lines("words", "${words[CURRENT-1]}", "    compadd -- ${(f)names}; return"),
            '  case "$line" in',
            *level_cases,
            "  esac",
            "  if [[ ${words[CURRENT]} == -* ]]; then _describe option options",
            "  elif (( $#follow )); then _describe qdebug follow",
            "  else _files; fi",
            "}",
            '_qdebug "$@"\n',
        )
    )


def _node_lines(words: str, previous_word: str, completion_line: str) -> list[str]:
    """Return the shell lines that complete the value of --node with the nodes of the last recording before it."""
    return [
        f"  if [[ {previous_word} == {_NODE} ]]; then",
        "    local each recording='' names=''",
        f'    for each in "${{{words}[@]}}"; do [[ $each == *{_RECORDING} && -f $each ]] && recording=$each; done',
        '    [[ -z $recording ]] || names=$(qdebug completion --nodes "$recording" 2>/dev/null)',
        completion_line,
        "  fi",
    ]


def _zsh_entry(name: str, text: str) -> str:
    escaped_name = name.replace(":", "\\:")
    return shlex.quote(f"{escaped_name}:{text}" if text else escaped_name)


_FISH_NODES = (
    f"(set -l found (string match -e -- '{_RECORDING}' (commandline -opc)); "
    'test -n "$found"; and qdebug completion --nodes $found[-1] 2>/dev/null)'
)


def _fish_script(levels: list[Completable]) -> str:
    lines = ["# fish completion for qdebug; made by: qdebug completion fish"]
    for level in levels:
        condition = _fish_condition(level)
        for name, text in level.actions.items():
            lines.append(f"complete -c qdebug -f -n {condition} -a {shlex.quote(name)} -d {shlex.quote(text)}")
        lines += [f"complete -c qdebug -f -n {condition} -a {shlex.quote(name)}" for name in level.arguments]
        for option, text in level.options.items():
            kind = f"-l {shlex.quote(option[2:])}" if option.startswith("--") else f"-s {shlex.quote(option[1:])}"
            values = level.choices.get(option)
            completion = f" -x -a {shlex.quote(' '.join(values))}" if values else ""
            if option in level.node_options:
                completion = f" -x -a {shlex.quote(_FISH_NODES)}"
            lines.append(f"complete -c qdebug -n {condition} {kind}{completion} -d {shlex.quote(text)}")
    return "\n".join(lines) + "\n"


def _fish_condition(level: Completable) -> str:
    if not level.words:
        return "__fish_use_subcommand"
    conditions = [f"__fish_seen_subcommand_from {word}" for word in level.words]
    if level.actions:
        conditions.append(f"not __fish_seen_subcommand_from {' '.join(level.actions)}")
    return shlex.quote("; and ".join(conditions))


_SHELLS: Mapping[str, Callable[[list[Completable]], str]] = MappingProxyType(
    {"bash": _bash_script, "zsh": _zsh_script, "fish": _fish_script}
)
