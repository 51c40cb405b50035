"""Expressions and property sets of the truth table for SQL92; the verdicts are RocketMQ's."""

PROPERTY_SETS: list[dict[str, str]] = [
    {},
    {"a": "1"},
    {"a": "5", "b": "5", "c": "x"},
    {"a": "10", "b": "2", "c": "eu", "TAGS": "red"},
    {"a": "-3", "b": "5", "d": "true"},
    {"a": "1.0", "b": "1", "d": "TRUE"},
    {"a": "abc", "b": "abd", "c": "it's", "d": "false"},
    {"a": "2147483648", "b": "-2147483649", "c": "9223372036854775808"},
    {"a": "+5", "b": "005", "c": " 5 ", "d": "5 "},
    {"a": "", "b": "0", "c": "-0", "d": "yes"},
    {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": "nan"},
    {"a": "0x10", "b": "0x1p4", "c": "1e3", "d": "1_000"},
    {"a": "٣", "b": "5f", "c": "中文", "d": "café"},
    {"a": "5d", "b": ".5", "c": "5.", "d": "-0.0"},
    {"a": "5.5", "b": "5.50", "c": "EU", "TAGS": "a'b", "KEYS": "k1 k2"},
    {"_x": "7", "$y": "7", "contains1": "z", "a": "9223372036854775807", "b": "1e400"},
    {"A": "5", "a": "6", "in1": "1", "b": "6.0", "d": "0.0"},
]

_COMPARISONS = """
a = 1
a = 5
a <> 5
5 <> a
5 = a
a > 5
a >= 5
a < 5
a <= 5
5 > a
5 < a
5 >= a
5 <= a
a = 1.0
a = 5.0
a > 1.5
a <= 5.5
1.5 < a
5.5 >= a
a = 1.
a = .5
b = .5
b <> .5
b = 5e0
a = 1e3
c = 1e3
c > 999.5
c = 1E+3
b > 1e-3
a = 5L
a = 5l
a = 2147483647
a = 2147483648
a > 2147483648
a >= 2147483648L
a < 9223372036854775807
a <= 9223372036854775807
a = 9223372036854775808
a = -9223372036854775808
a > -9223372036854775807
a = -1
a > -5
a < -2
a = -3
-3 = a
a <> -3
a = --3
a = - -3
a = +5
a = +-3
a = -+3
a > -1.5
a = -2147483648
b = -2147483649
a = 'abc'
a = '5'
a <> '5'
'5' = a
'5' <> a
c = 'x'
c <> 'x'
c = 'it''s'
c = ''''
c = ''
c = '中文'
c <> '中文'
d = 'café'
d = 'cafe'
a = b
a <> b
b = a
a > b
a >= b
a < b
a <= b
b > c
c < b
c >= d
zz = yy
zz <> yy
zz > yy
a = zz
zz = a
zz <> 5
5 <> zz
5 = zz
a = 0
b = 0
c = 0
a = 00
a = 0.0
a = 0.1
a = 007
a = 0x10
a = 5.5f
a = 1e400
a = 1e-400
a = 4.9e-324
a > 1.7976931348623157e308
a > 5 > 3
a = 5 = 5
a = 5 = TRUE
a > b > c
5 > 3
5 > 4.5
3 > 5
5 = 5.0
5 = 5
5 <> 5
'5' = 5
5 = '5'
'a' = 'a'
'a' = 'b'
'a' = 5
5.5 = 5
4.5 < 5
9007199254740993 = 9007199254740992.0
9223372036854775807 > 9.2e18
-5 = -5.0
-5 > -6
-5 < 'x'
A = 5
TAGS = 'red'
TAGS = 'a''b'
KEYS = 'k1 k2'
tags = 'red'
_x = 7
$y = 7
contains1 = 'z'
in1 = 1
a == 5
a != 5
a =
= 5
a 5
a > = 5
a >< 5
a > 'x'
a < '5'
'5' < a
a > TRUE
TRUE > a
a > NULL
a > (b = 1)
(a = 1) > 5
a LIKE 'x%'
a + 5 = 10
a * 5 = 10
a = 5 + 5
"a" = 5
a = "5"
a.b = 1
a-b = 1
a[0] = 1
`a` = 1
a = 5;
a = 5; b
a = 5 #
a = 5 b #
a = #
{a} = 5
a = 'x
a = 'x''
a = 'x' 'y'
a = 'x''y'
"""

_TRUTH = """
TRUE
FALSE
NULL
a
(a)
zz
NOT a
NOT zz
NOT TRUE
NOT NULL
NOT NOT a
NOT (a)
NOT 5
NOT 'x'
5
'x'
-a
-5
+a
+TRUE
+(a = 5)
-(a = 5)
-TRUE = 5
-a = 5
-a > 5
-a = zz
-'5' = 5
-'5' = zz
-(TRUE = a) = 5
--a IS NULL
d = TRUE
d = FALSE
d <> TRUE
d <> FALSE
TRUE = d
TRUE <> d
FALSE = d
TRUE = zz
TRUE <> zz
TRUE = TRUE
TRUE = FALSE
TRUE <> FALSE
5 = TRUE
TRUE = 5
5.5 = TRUE
'true' = TRUE
'TRUE' = TRUE
'x' = FALSE
TRUE = 'true'
TRUE = (5)
(a = 5) = TRUE
TRUE = (a = 5)
(a = 5) = (b = 5)
(a = 5) <> (b = 5)
(a = 5) = 5
5 = (a = 5)
(a = 5) = 'true'
'true' = (a = 5)
(a = 5) = d
d = (a = 5)
(zz = 5) = d
(zz = 5) = (yy = 5)
(zz = 5) = TRUE
a = NULL
NULL = a
a <> NULL
NULL = NULL
a = -NULL
-NULL = a
a IS NULL
a IS NOT NULL
zz IS NULL
zz IS NOT NULL
NULL IS NULL
NULL IS NOT NULL
5 IS NULL
TRUE IS NOT NULL
'x' IS NULL
-5 IS NULL
-a IS NULL
(a = 5) IS NULL
(a = 5) IS NOT NULL
a = 5 IS NULL
a = 5 IS NOT NULL
a > 5 IS NULL
a IS NULL IS NULL
a IS NULL IS NOT NULL
a IS NULL = TRUE
a IS NOT NULL = d
a IS NULL = b IS NULL
NOT a IS NULL
NOT a IS NOT NULL
NOT (a IS NULL)
a IS 5
a IS
a IS NOT
a IS NOT 5
IS NULL
a IS TRUE
a IS NULL < 5
a IS NULL NOT b
(a IS NULL < 5)
(a IS NULL) < 5
a IS NULL IN ('5')
a IS NOT NULL BETWEEN 1 AND 5
a IS NULL <> TRUE
NOT a = 1
NOT (a = 1)
NOT a <> 1
NOT a = b
NOT a > 5
NOT (a > 5)
NOT (NOT (a > 5))
NOT NOT (a = 5)
NOT (zz = 5)
NOT d = TRUE
NOT d = FALSE
a = NOT b
a = NOT (b = 5)
a NOT = 5
a NOT 5
a = 1 NOT b
a = 5 AND b = 5
a = 5 OR b = 5
a = 5 AND
AND a = 5
a = 5 OR OR b = 5
a = 5 b = 5
a AND b
a OR b
a AND TRUE
zz AND FALSE
zz AND TRUE
zz OR TRUE
zz OR FALSE
NULL AND FALSE
NULL OR TRUE
NULL OR FALSE
5 AND TRUE
'x' OR TRUE
-a OR TRUE
a = 5 AND zz = 5
a = 5 OR zz = 5
zz = 5 AND a = 5
zz = 5 OR a = 5
zz = 1 AND yy = 2
zz = 1 OR yy = 2 OR a = 5
zz = 1 AND yy = 2 AND a = 5
a = 5 OR b = 2 AND c = 'eu'
(a = 5 OR b = 2) AND c = 'eu'
a = 10 AND b = 2 OR c = 'x'
a = 10 AND (b = 2 OR c = 'x')
a = 5 AND b = 5 OR c = 'eu' AND TAGS = 'red'
a = 5 OR b = 5 AND NOT (c = 'x')
NOT (a = 5 AND b = 5)
NOT (a = 5 OR b = 5)
NOT (a = 5) AND NOT (b = 5)
NOT (a = 5) OR b = 5
NOT a AND b = 5
a = 'abc' OR a > 5
a > 5 OR a = 'abc'
c = 'x' AND a > 3
c <> 'x' AND a > 3
a IS NULL OR a > 5
a IS NOT NULL AND a > 5
FALSE AND a > 5
TRUE OR a > 5
a > 5 OR TRUE
a > 5 AND FALSE
(((((((((a = 5)))))))))
((a = 5) AND ((b = 5)))
(a = 5
a = 5)
a = 5))
)
()
(
(a = 5) b
(a) = 5
((a)) > (5)
(a, b)
a, b
"""

_TESTS = """
a IN ('5')
a IN ('5', '10')
a IN ('1','5','10','abc','1.0','+5')
a NOT IN ('5')
a NOT IN ('5','10','abc','x','y','z')
c IN ('中文')
c IN ('it''s')
c IN ('')
a IN ('')
zz IN ('5')
zz NOT IN ('5')
NOT (a IN ('5'))
NOT a IN ('5')
(a) IN ('5')
a IN (5)
a IN ()
a IN '5'
a IN ('5'
a IN ('5',)
a IN ('5' '6')
5 IN ('5')
'5' IN ('5')
-a IN ('5')
TRUE IN ('5')
NULL IN ('5')
(a = 5) IN ('5')
a IN ('5') IN ('5')
a IN ('5') = TRUE
a IN ('5') AND b = 5
a IN ('5') > 3
a IN (b)
a BETWEEN 1 AND 5
a BETWEEN 5 AND 10
a BETWEEN 5 AND 5
a BETWEEN 10 AND 5
a BETWEEN 1.5 AND 5.5
a BETWEEN 1 AND 5.5
a BETWEEN 1.5 AND 5
a BETWEEN 5 AND 4.5
a BETWEEN -5 AND 5
a BETWEEN 5 AND -5
a BETWEEN -1 AND -5
a BETWEEN b AND 10
a BETWEEN 1 AND b
a BETWEEN b AND c
a BETWEEN 'a' AND 'z'
a BETWEEN '1' AND '5'
a BETWEEN 1 AND '5'
a BETWEEN NULL AND 5
a BETWEEN 1 AND NULL
a BETWEEN TRUE AND FALSE
a BETWEEN (b = 1) AND 5
5 BETWEEN 1 AND 10
5 BETWEEN 6 AND 10
'5' BETWEEN 1 AND 10
TRUE BETWEEN 1 AND 10
a NOT BETWEEN 1 AND 5
a NOT BETWEEN 5 AND 1
a NOT BETWEEN b AND 10
a NOT BETWEEN 1.5 AND 5.5
zz BETWEEN 1 AND 5
zz NOT BETWEEN 1 AND 5
a BETWEEN zz AND 5
a NOT BETWEEN zz AND 5
a BETWEEN 1 AND zz
a NOT BETWEEN 1 AND zz
NOT (a BETWEEN 1 AND 5)
NOT a BETWEEN 1 AND 5
a BETWEEN 1 AND 5 AND b = 5
a BETWEEN 1 AND 5 OR b = 2
a BETWEEN 1 AND 5 = TRUE
a BETWEEN 1 AND 5 IS NULL
a BETWEEN 1 AND 5 BETWEEN 0 AND 1
a BETWEEN (1) AND (5)
a BETWEEN 2147483648 AND 9223372036854775807
a BETWEEN 1 OR 5
a BETWEEN 1 AND
a BETWEEN 1
a BETWEEN AND 5
a BETWEEN (1 AND 5)
(a BETWEEN 1) AND 5
a BETWEEN -'x' AND 5
c CONTAINS 'u'
c CONTAINS 'eu'
c NOT CONTAINS 'u'
c CONTAINS ''
c NOT CONTAINS ''
zz CONTAINS 'x'
zz NOT CONTAINS 'x'
NOT (zz CONTAINS 'x')
NOT zz CONTAINS 'x'
a CONTAINS '5'
c CONTAINS '中'
c CONTAINS 't''s'
a CONTAINS 5
a CONTAINS b
5 CONTAINS '5'
'hello' CONTAINS 'ell'
'hello' NOT CONTAINS 'ell'
-5 CONTAINS '5'
TRUE CONTAINS 'T'
NULL CONTAINS 'x'
NULL NOT CONTAINS 'x'
(a = 5) CONTAINS 'x'
(a = 5) NOT CONTAINS 'x'
c CONTAINS 'e' CONTAINS 'x'
c CONTAINS 'e' = TRUE
c CONTAINS 'e' AND a = 10
c CONTAINS
CONTAINS 'x'
c STARTSWITH 'e'
c STARTSWITH 'E'
c NOT STARTSWITH 'e'
c STARTSWITH ''
c NOT STARTSWITH ''
zz STARTSWITH 'x'
zz NOT STARTSWITH 'x'
c STARTSWITH 'eu'
c STARTSWITH 'euro'
a STARTSWITH '1'
a STARTSWITH '-'
'hello' STARTSWITH 'he'
c STARTSWITH 5
c STARTSWITH
c ENDSWITH 'u'
c ENDSWITH 'U'
c NOT ENDSWITH 'u'
c ENDSWITH ''
c NOT ENDSWITH ''
zz ENDSWITH 'x'
zz NOT ENDSWITH 'x'
c ENDSWITH 's'
d ENDSWITH 'é'
c ENDSWITH ('s')
c startswith 'e' OR c endswith 's'
c not contains 'e' and c Not StartsWith 'i'
true
a is null
a Is Not Null
a between 1 and 5
a in ('5')
a not in ('5') or b = 5
not (a = 5) and b = 5
in = 1
is = 1
contains = 1
null = 1
not = 1
and = 1
between = 1
startswith = 'x'
true = 1
notx = 1
isnull IS NULL
nulls IS NULL
order = 1
a = 5 -- the end
a = 5 -- the # end
a /* five */ = /* is
a = 5 */ 5
a /**/ = 5
a /***/ = 5
a /*/ = 5
a = 5 /* open
a = 5 /* closed */
/* only */
-- only
--
a = 5 / 2
a	=	5
а = 5
é = 5
"""

# Several lines, or characters that are not for a list of lines.
_MORE = [
    "  a = 5  ",
    "a\u00a0= 5",
    "a\x0b= 5",
    "\0",
    "a = 5\0",
    "",
    " ",
    "\n",
    "a = 5 -- the end\n",
    "-- first\na = 5",
    "a = -- five\r5",
    "a = --5\n5",
    "a = --5",
    "-- # ' \n a = 5 -- ' \n OR b = 5",
    "a\r\n=\t5\f",
    "a = 'x\ny'",
    "c = 'x' /* ' */ OR a = 5",
    "a = 5 OR -- no\n-- none\nb = 5",
    "(" * 100 + "a = 5" + ")" * 100,
    "(" * 100 + "a = 5" + ")" * 99,
    "NOT " * 50 + "(a = 5)",
    "NOT " * 51 + "(a = 5)",
    "- " * 30 + "5 = a",
    "- " * 31 + "5 = a",
    "+" * 12 + "5 = a",
    " OR ".join(f"a = {number}" for number in range(200)),
    " AND ".join(f"a <> {number}" for number in range(0, 400, 2)),
    " OR ".join("(a = 5 AND b = 5)" for _ in range(50)),
    "(a = 5 AND " * 60 + "b = 5" + ")" * 60,
    "(a = 5 OR " * 60 + "b = 2" + ")" * 60,
    "a IN (" + ",".join(f"'{number}'" for number in range(300)) + ")",
    "a = 5" + " = TRUE" * 60,
    "a = 5" + " IS NULL" * 61,
    "a = 5 AND NOT (b = 2 OR NOT (c = 'x' AND NOT (zz IS NOT NULL OR d = TRUE)))",
]

EXPRESSIONS: list[str] = [
    *[line for text in (_COMPARISONS, _TRUTH, _TESTS) for line in text.splitlines() if line],
    *_MORE,
]
