import re
from random import Random

from hypothesis import assume, example, given
from hypothesis import strategies as st

from correlator.rulebook.naming import class_name, dataset_urn, look_alikes, normalize_namespace, same_names
from correlator.rulebook.patterns import NamePattern

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
URL_SHARDS = [
    *("jdbc:", "JDBC:", "postgresql", "postgres", "Kafka", "s3a", "abfss", "wasb", "spanner", "x", "inmemory", "arn:"),
    *("://", "://", ":", "/", "//", "@", "?", "#", ";", ",", ".", " ", "[", "]", "[::1]", "\\", "\x00", "\ud800"),
    *("Host", "h", "user", "p/w", "5432", "9", "İ", "ΑΣ", "\u212a", "é", "\n"),
]
URL_LIKE = st.lists(st.sampled_from(URL_SHARDS), max_size=14).map("".join)
URL = st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["postgresql", "kafka", "s3a", "abfs", "jdbc:hive", "ftp"]),
    st.sampled_from(["", "u:p@", "u@", "u:p/w@", "u:5@"]),
    st.lists(st.sampled_from(["A", "b:1", "[::1]", "[::1]:2", "", "c:"]), min_size=1, max_size=3).map(",".join),
    st.sampled_from(["", "/", "/Path", "/p@q", "?q=a@b", "#f", ";a=b"]),
)
NAMESPACES = st.one_of(URL, URL_LIKE, ANY_TEXT)
NAMES = st.one_of(URL, URL_LIKE, ANY_TEXT)


@given(NAMESPACES)
@example("postgres://İ:")
@example("jdbc:jdbc:postgres://u:p/w@v:q/z@h")
def test_normalising_twice_is_normalising_once(namespace: str) -> None:
    once = normalize_namespace(namespace)
    assert normalize_namespace(once) == once


@given(st.characters(codec=None, exclude_categories=()))
def test_lower_case_of_any_letter_is_final(letter: str) -> None:
    once = normalize_namespace(f"kafka://{letter}a{letter}")
    assert normalize_namespace(once) == once


@given(NAMESPACES, NAMES)
def test_a_urn_can_always_be_stored_and_is_the_same_under_the_normal_namespace(namespace: str, name: str) -> None:
    urn = dataset_urn(namespace, name)
    assert "\x00" not in urn
    assert urn.encode("utf-8").decode("utf-8") == urn
    assert dataset_urn(normalize_namespace(namespace), name) == urn


@given(NAMESPACES, NAMES, st.integers(0, 3), st.integers(0, 3))
def test_slashes_at_the_joint_are_one(namespace: str, name: str, before: int, after: int) -> None:
    normal = normalize_namespace(namespace)
    # Slashes after a lone colon would not lengthen the joint but make a scheme.
    assume(normal.endswith("://") or not normal.rstrip("/").endswith(":"))
    urn = dataset_urn(normal, name)
    assert dataset_urn(normal + "/" * before, "/" * after + name) == urn
    scheme, separator, rest = normal.rpartition("://")
    prefix = f"{scheme}{separator}{rest.rstrip('/')}/"
    assert urn.startswith(prefix)
    assert not urn.removeprefix(prefix).startswith("/")


@given(
    st.sampled_from(["postgresql", "mysql", "s3a", "ftp", "jdbc:db2"]),
    st.text("abcXYZ019._-$%!*", min_size=1, max_size=8),
    # Escaping was forgotten. Both kinds at once leave no way to tell where the password ends.
    st.one_of(st.text("abXY01._-$%!*:/?#;", max_size=20), st.text("abXY01._-$%!*:@", max_size=20)),
    st.sampled_from(["", "/db", "/Db/x", "?ssl=true"]),
)
def test_a_password_never_reaches_the_urn(scheme: str, user: str, password: str, rest: str) -> None:
    # It begins with a letter, because `u:12/34@h` may as well be port 12 and a path.
    leaky = f"{scheme}://{user}:x{password}@host:1{rest}"
    clean = f"{scheme}://host:1{rest}"
    assert normalize_namespace(leaky) == normalize_namespace(clean)
    assert dataset_urn("ns", f"{leaky}/t") == f"ns/{clean}/t"


PLACEHOLDERS = st.lists(st.booleans(), min_size=1, max_size=5)


@given(st.data(), PLACEHOLDERS)
def test_a_pattern_finds_again_what_was_put_into_it(data: st.DataObject, elastic: list[bool]) -> None:
    literal = st.text(".:-{}", min_size=1, max_size=4)
    pattern, urn, expected = "", "", {}
    for index, crosses in enumerate(elastic):
        between = data.draw(literal)
        value = data.draw(st.text("abc/\n" if crosses else "abc\n", min_size=1, max_size=6))
        pattern += between.replace("{", "{{").replace("}", "}}") + f"{{p{index}{'*' if crosses else ''}}}"
        urn += between + value
        expected[f"p{index}"] = value
    identity = NamePattern.parse(pattern, pattern)
    assert identity.bind(urn) == expected
    assert identity.apply(urn) == urn


@given(
    st.lists(st.tuples(st.booleans(), st.text("ab/", min_size=1, max_size=3)), min_size=1, max_size=5),
    st.text("ab/", max_size=2),
    st.booleans(),
    st.text("ab/", max_size=14),
)
@example([(True, "a"), (False, "b"), (True, "/")], "", False, "ba/ab/ab/")
def test_a_pattern_binds_as_the_lazy_regular_expression_would(
    steps: list[tuple[bool, str]],
    head: str,
    ends_open: bool,  # noqa: FBT001
    urn: str,
) -> None:
    if ends_open:
        steps = [*steps[:-1], (steps[-1][0], "")]
    pattern, expression = head, re.escape(head)
    for index, (crosses, literal) in enumerate(steps):
        pattern += f"{{p{index}{'*' if crosses else ''}}}{literal}"
        expression += f"(?P<p{index}>{'.' if crosses else '[^/]'}+?){re.escape(literal)}"
    match = re.fullmatch(expression, urn, re.DOTALL)
    assert NamePattern.parse(pattern, "t").bind(urn) == (match and match.groupdict())


URNS = st.sampled_from([f"{server}/{table}" for server in "ABc" for table in ("x.t", "y.t", "X.T", "u")])


@given(st.lists(st.tuples(URNS, URNS)), st.randoms(use_true_random=False))
def test_classes_are_an_equivalence_that_ignores_order(aliases: list[tuple[str, str]], random: Random) -> None:
    classes = same_names(aliases)
    assert all(urn in members for urn, members in classes.items())
    assert all(classes[one] == classes[other] for one, other in aliases)
    assert all(classes[other] is members for members in classes.values() for other in members)
    # Nothing is joined that no chain of pairs joins.
    for urn, members in classes.items():
        reached, grown = {urn}, True
        while grown:
            step = {end for pair in aliases if reached & set(pair) for end in pair}
            grown = not step <= reached
            reached |= step
        assert members == reached
    shuffled = [(other, one) for one, other in aliases]
    random.shuffle(shuffled)
    assert same_names(shuffled) == classes
    assert all(class_name(members) == min(members) for members in classes.values())


@given(URNS, st.lists(URNS), st.integers(0, 5), st.randoms(use_true_random=False))
def test_look_alikes_ignore_the_order_of_candidates(
    urn: str, candidates: list[str], limit: int, random: Random
) -> None:
    found = look_alikes(urn, candidates, limit)
    shuffled = [*candidates]
    random.shuffle(shuffled)
    assert look_alikes(urn, shuffled, limit) == found
    assert len(found) <= limit
    assert set(found) <= {other for other in candidates if other != urn and other[-1].lower() == urn[-1].lower()}
