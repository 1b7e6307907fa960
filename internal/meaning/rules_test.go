package meaning

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write deploy/severity.md anew")

const rulesFile = "../../deploy/severity.md"

// TestRulesAreDocumented holds the document against the table. To write it anew:
//
//	go test ./internal/meaning -run Documented -update
func TestRulesAreDocumented(t *testing.T) {
	t.Parallel()
	if *update {
		require.NoError(t, os.WriteFile(rulesFile, []byte(rulesDocument()), 0o644))
	}
	got, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	require.Equal(t, rulesDocument(), string(got), "write it anew: go test ./internal/meaning -run Documented -update")
}

func rulesDocument() string {
	var b strings.Builder
	b.WriteString(`# What a change means

Made from the table in ` + "`internal/meaning/rules.go`" + `; a test compares them. Each statement about a change names its rule.

The direction says what a setting permits after the change: something new (weaker), less (stronger), both (mixed), the same
(neutral), or no rule can tell (unknown). A change with several statements has the worst severity of them. It is mixed if
anything became weaker and anything stronger; weaker stays weaker beside unknown, and stronger beside unknown is unknown.

- **RBAC.** The set of (holder, resource, action). Holders are default roles, custom roles and scopes. ` + "`*`" + ` among the actions of a
  permission stands for all actions listed by the resource, and is a name like any other elsewhere. On an action missing
  from its resource's list, and on a resource without a list, the effect of a permission is unknown.
- **Passwords.** The sets of passwords accepted when they are set, and of existing ones accepted at log-in. LUDS counts characters and classes. ZXCVBN is
  taken to accept random passwords of 9 characters and more and to refuse patterns of any length, so the two rarely include each other.
- **Countries.** The set of codes. An empty list allows none.
- **Trusted tokens.** Keys are compared by their SHA-256: an id alone changes nothing.
- **Streaming.** A log going elsewhere is weaker: somebody else sees it, and the one who watched does not.
- **The relay's own configuration.** What is watched, delivered and recorded: taking an environment, a sink or a witness away is weaker.
- **Mail.** The set of hosts with a link in mail, and the set of senders' domains, over all templates of a project. All else is neutral.

| rule | direction | severity | what happened | why so severe |
|---|---|---|---|---|
`)
	for _, r := range slices.SortedFunc(slices.Values(rules), func(a, b Rule) int { return compareText(a.ID, b.ID) }) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.ID, r.Direction, r.Severity, r.Means, r.Reason)
	}
	return b.String()
}

func TestEachRuleIsWhole(t *testing.T) {
	t.Parallel()
	require.Len(t, rulesByID, len(rules), "two rules have one id")
	for _, r := range rules {
		require.GreaterOrEqual(t, rank(r.Severity), 0, r.ID)
		require.GreaterOrEqual(t, order(r.Direction), 0, r.ID)
		require.NotEmpty(t, r.Means, r.ID)
		require.NotEmpty(t, r.Reason, r.ID)
		if r.Direction == Stronger || r.Direction == Neutral {
			require.LessOrEqual(t, rank(r.Severity), rank(Low), "%s: nothing new is permitted", r.ID)
		}
	}
}
