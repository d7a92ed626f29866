"""House rules that a pattern can see. Each rule: where it holds, what it forbids, and why."""
import re

from sources import code_only, cpp_files, line_of, read

# What is let through, with the reason.
ALLOWED = {
    ("cli/run.cpp", "global"): "a signal handler can reach nothing but a global flag",
    ("core/base/philox.h", "cuda-ifdef"): "one macro marks the draws that both machines share",
}

TYPE = r"[\w:]+(?:\s*<[^;=(){}]*>)?[\s*&]+"
NOT_A_VARIABLE = (r"(?!(?:using|typedef|namespace|struct|class|enum|union|template|return|friend|"
                  r"extern|goto|public|private|protected|case|default|else|concept)\b)")

# (name, folders it holds in, pattern, message); patterns see code without comments and literals.
PATTERNS = [
    ("wall-clock", ["core"],
     r"\b(system_clock|steady_clock|high_resolution_clock|gettimeofday|clock_gettime|"
     r"std::time|std::clock)\b",
     "core has no wall clock: a Clock is injected by cli"),
    ("thread-local", ["core", "backends", "analysis", "cli"],
     r"\bthread_local\b",
     "no thread_local: it leaks between modelled ranks"),
    ("mutable-static", ["core", "backends", "analysis", "cli"],
     r"\bstatic\s+(?:inline\s+)?(?!(?:inline\s+)?(?:const|constexpr|constinit\s+const)\b)"
     r"[^;={(]*[;={]",
     "no mutable static: state lives in objects"),
    ("global", ["core", "backends", "analysis", "cli"],
     r"^(?:inline\s+)?" + NOT_A_VARIABLE + r"(?!const\b|constexpr\b|static\b|inline\b)" + TYPE +
     r"\w+(?:\[[^\]]*\])?\s*(?:;|=(?!=)|\{)",
     "no global variable: state lives in objects"),
    ("cuda-ifdef", ["core", "backends/sim", "analysis", "cli", "tests/core"],
     r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b[^\n]*(?:CUDA|NCCL|NVCC|HAVE_GPU)",
     "no #if on a backend: an absent backend is a stub file"),
    ("simulated-if", ["core"],
     r"\bif\s*\([^)\n]*\b(?:is_)?simulat(?:ed|ing|ion|or)\b",
     "core does not know which machine it runs on"),
]

CATCH_ALL = re.compile(r"\bcatch\s*\(\s*\.\.\.\s*\)\s*\{")
RETHROW = re.compile(r"\bthrow\s*;|\brethrow_exception\b|\bcurrent_exception\b|\bthrow_with_nested\b")
PURE_VIRTUAL = re.compile(r"\bvirtual\b[^;{}]*=\s*0\s*;")
BOUNDARY_LIMIT = 25
SCOPE = re.compile(r"(?P<space>\bnamespace\s*(?P<path>[\w:]*))\s*\{|"
                   r"\b(?:struct|class|union|enum(?:\s+class|\s+struct)?)\s+(?:\[\[\w+\]\]\s*)?"
                   r"(?P<type>\w+(?:::\w+)*)(?=[\s:{])(?:[^;{}()=]*)\{|\{|\}")


def block_after(code, start):
    """The text of the braces that open just before `start`."""
    depth = 1
    for position in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[position], 0)
        if depth == 0:
            return code[start:position]
    return code[start:]


def types_defined(code):
    """(qualified name, position) of each type that the linker sees: none of a function's own, and
    none in a namespace without a name."""
    scopes = []  # a name where types have one from outside, else None
    for match in SCOPE.finditer(code):
        if match.group() == "}":
            if scopes:
                scopes.pop()
        elif match["space"]:
            scopes.append(match["path"] or None)
        elif match["type"]:
            scopes.append(match["type"])
            if None not in scopes:
                yield "::".join(scopes), match.start("type")
        else:
            scopes.append(None)


def inside(name, folders):
    return any(name.startswith(folder + "/") for folder in folders)


def check(root):
    """The violations found, as "file:line: what" strings."""
    found = []
    boundary = 0
    types = {}
    for name in cpp_files(root):
        code = code_only(read(root, name))
        for rule, folders, pattern, message in PATTERNS:
            if not inside(name, folders) or (name, rule) in ALLOWED:
                continue
            for match in re.finditer(pattern, code, re.M):
                found.append(f"{name}:{line_of(code, match.start())}: {message} [{rule}]")
        if inside(name, ["core"]):
            for match in CATCH_ALL.finditer(code):
                if not RETHROW.search(block_after(code, match.end())):
                    found.append(f"{name}:{line_of(code, match.start())}: core has no catch (...) "
                                 "without rethrow [catch-all]")
        if inside(name, ["core", "backends", "analysis", "cli"]):
            for type_name, position in types_defined(code):
                first = types.setdefault(type_name, name)
                if first != name:
                    found.append(f"{name}:{line_of(code, position)}: {type_name} is a type of "
                                 f"{first} too: the linker keeps one of the two's functions for "
                                 "both [one-type]")
        if inside(name, ["core/device"]):
            boundary += len(PURE_VIRTUAL.findall(code))
    if boundary > BOUNDARY_LIMIT:
        found.append(f"core/device:1: {boundary} pure virtual functions; the boundary has at most "
                     f"{BOUNDARY_LIMIT} [boundary]")
    return found
