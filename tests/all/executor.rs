//! Python without Python: what models write, and what must end.

use std::time::Duration;

use whale_runtime::{
    compile::{Cache, Compiler},
    contract::{Execution, Status},
    executor::Executor,
    ports::{CodeExecutor, CodeLimits},
    process::Program,
};

use crate::support::{self, WHALE};

const LIMITS: CodeLimits = CodeLimits {
    wall: Duration::from_secs(20),
    memory: 512 << 20,
    output: 64 << 10,
    seed: 7,
};

async fn executor() -> Executor {
    let program = Program::new(WHALE.into());
    let cache = Cache::open(support::cache().join("native")).unwrap();
    let compiler = Compiler::new(program.clone(), cache, false);
    let guest = support::cache().join("python-executor.wasm");
    Executor::prepare(program, &compiler, guest, 2, false)
        .await
        .unwrap()
}

async fn run(source: &str) -> Execution {
    executor()
        .await
        .execute("python", source, "", LIMITS)
        .await
        .unwrap()
}

#[track_caller]
fn printed(execution: &Execution, expected: &str) {
    assert_eq!(execution.status, Status::Ok, "{}", execution.stderr);
    assert_eq!(execution.stdout, expected, "{}", execution.stderr);
}

/// Programs as models write them for maths; what they print is what CPython prints.
#[tokio::test]
async fn maths_as_models_write_it() {
    let executor = executor().await;
    for (source, expected) in [
        ("print(sum(range(10)))", "45\n"),
        (
            "import math\nprint(math.comb(10, 3), math.gcd(84, 36), math.isqrt(10**20))",
            "120 12 10000000000\n",
        ),
        (
            "print(2**200)",
            "1606938044258990275541962092341162602522202993782792835301376\n",
        ),
        (
            "from fractions import Fraction as F\nprint(sum(F(1, n) for n in range(1, 11)))",
            "7381/2520\n",
        ),
        (
            "from decimal import Decimal, getcontext\ngetcontext().prec = 30\nprint(Decimal(2).sqrt())",
            "1.41421356237309504880168872421\n",
        ),
        (
            "from itertools import permutations\nprint(len([p for p in permutations(range(6)) if p[0] < p[5]]))",
            "360\n",
        ),
        (
            "import re\nprint(re.findall(r'\\d+', 'a1b22c333'))",
            "['1', '22', '333']\n",
        ),
        (
            "import json\nprint(json.dumps({'a': [1, 2.5, None]}))",
            "{\"a\": [1, 2.5, null]}\n",
        ),
        (
            "import statistics\nprint(statistics.mean([1, 2, 3, 4]), statistics.pstdev([2, 4]))",
            "2.5 1.0\n",
        ),
        (
            "from functools import lru_cache\n@lru_cache(None)\ndef f(n):\n    return n if n < 2 else f(n-1) + f(n-2)\nprint(f(90))",
            "2880067194370816120\n",
        ),
        (
            "from collections import Counter\nprint(Counter('mississippi').most_common(2))",
            "[('i', 4), ('s', 4)]\n",
        ),
        (
            "x = 3.14159\nprint(f'{x:.2f} {x:>8.3f} {10**6:,} {255:#x}')",
            "3.14    3.142 1,000,000 0xff\n",
        ),
        (
            "import datetime\nprint(datetime.date(2024, 2, 29).strftime('%A'))",
            "Thursday\n",
        ),
        ("print((1 + 2j) ** 2, abs(3 + 4j))", "(-3+4j) 5.0\n"),
        ("match [1, 2]:\n    case [a, b]: print(a + b)", "3\n"),
        (
            "import heapq, bisect\nh = [3, 1, 2]\nheapq.heapify(h)\nprint(heapq.heappop(h), bisect.bisect([1, 3, 5], 4))",
            "1 2\n",
        ),
        (
            "class P:\n    def __init__(self, x): self.x = x\n    def __repr__(self): return f'P({self.x})'\nprint(P(1))",
            "P(1)\n",
        ),
        ("print(__name__)", "__main__\n"),
    ] {
        let execution = executor
            .execute("python", source, "", LIMITS)
            .await
            .unwrap();
        printed(&execution, expected);
    }
}

#[tokio::test]
async fn input_is_read() {
    let source = "n = int(input())\nprint(n * 2, input('name? '))";
    let execution = executor()
        .await
        .execute("python", source, "21\nAda\n", LIMITS)
        .await
        .unwrap();
    printed(&execution, "name? 42 Ada\n");
}

#[tokio::test]
async fn an_exception_is_a_traceback() {
    let execution = run("def f(x):\n    return 1 / x\nprint('before')\nf(0)\n").await;
    assert_eq!(execution.status, Status::Error);
    assert_eq!(execution.stdout, "before\n");
    assert!(
        execution.stderr.contains("line 2, in f"),
        "{}",
        execution.stderr
    );
    assert!(
        execution
            .stderr
            .contains("ZeroDivisionError: division by zero")
    );
    let execution = run("print('a'\n").await;
    assert!(
        execution.stderr.contains("SyntaxError"),
        "{}",
        execution.stderr
    );
    let execution = run("import sys\nsys.exit(3)").await;
    assert_eq!(execution.status, Status::Error);
    let execution = run("import sys\nprint('x')\nsys.exit()").await;
    printed(&execution, "x\n");
}

#[tokio::test]
async fn a_package_that_is_not_there_is_named_with_what_is() {
    let execution = run("import sympy").await;
    assert_eq!(execution.status, Status::Error);
    assert!(
        execution.stderr.contains("No module named 'sympy'"),
        "{}",
        execution.stderr
    );
    assert!(
        execution.stderr.contains("fractions"),
        "{}",
        execution.stderr
    );
}

#[tokio::test]
async fn bounds_hold_and_what_was_printed_is_kept() {
    let executor = executor().await;
    let run = async |source: &str, limits: CodeLimits| {
        executor
            .execute("python", source, "", limits)
            .await
            .unwrap()
    };
    let short = CodeLimits {
        wall: Duration::from_millis(400),
        ..LIMITS
    };
    let execution = run("print('before', flush=True)\nwhile True: pass", short).await;
    assert_eq!(
        (execution.status, &*execution.stdout),
        (Status::Timeout, "before\n")
    );

    let small = CodeLimits {
        memory: 96 << 20,
        ..LIMITS
    };
    let execution = run("print('before', flush=True)\nx = 'y' * 10**9", small).await;
    assert_eq!(
        (execution.status, &*execution.stdout),
        (Status::Memory, "before\n")
    );
    let execution = run("x = []\nwhile True: x.append('y' * 100000)", small).await;
    assert_eq!(execution.status, Status::Memory);

    let quiet = CodeLimits {
        output: 100,
        ..LIMITS
    };
    let execution = run("for i in range(10**6): print('line', i)", quiet).await;
    assert_eq!(
        (execution.status, execution.stdout.len()),
        (Status::Output, 100)
    );

    let execution = run("def f(n): return f(n + 1)\nf(0)", LIMITS).await;
    assert_eq!(execution.status, Status::Error);
    assert!(
        execution.stderr.contains("RecursionError"),
        "{}",
        execution.stderr
    );
    let deep = "import sys\nsys.setrecursionlimit(10**7)\ndef f(n): return f(n + 1)\nf(0)";
    let execution = run(deep, LIMITS).await;
    assert_eq!(execution.status, Status::Error, "{}", execution.stderr);

    // After all that, it still works.
    printed(&run("print(1)", LIMITS).await, "1\n");
}

#[tokio::test]
async fn there_is_no_machine_behind_it() {
    let execution = run("import os, time\n\
         def attempt(f):\n    \
             try: f(); return 'got in'\n    \
             except Exception as e: return 'kept out'\n\
         print(attempt(lambda: open('/etc/passwd')), attempt(lambda: open('/tmp/x', 'w')),\n      \
             attempt(lambda: os.listdir('/')), attempt(lambda: os.system('id')), dict(os.environ))\n\
         start = time.time()\ntime.sleep(1000)\nprint(time.time() - start > 999)");
    printed(
        &execution.await,
        "kept out kept out kept out kept out {}\nTrue\n",
    );
}

/// Programs share nothing, and the same seed gives the same randomness.
#[tokio::test]
async fn programs_are_strangers_to_each_other() {
    let executor = executor().await;
    let run = async |source: &str, seed: u64| {
        executor
            .execute("python", source, "", CodeLimits { seed, ..LIMITS })
            .await
            .unwrap()
            .stdout
    };
    let _ = run("import math\nmath.pi = 3\nprint(math.pi)", 1).await;
    assert_eq!(
        run("import math\nprint(math.pi)", 1).await,
        "3.141592653589793\n"
    );
    let random = "import random\nprint(random.random(), hash('x'))";
    assert_eq!(run(random, 1).await, run(random, 1).await);
    assert_ne!(run(random, 1).await, run(random, 2).await);
}
