package meaning

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write deploy/severity.md again")

const rulesFile = "../../../deploy/severity.md"

// TestRulesAreDocumented holds the document against the table. To write it again:
//
//	go test ./internal/workspace/meaning -run Documented -update
func TestRulesAreDocumented(t *testing.T) {
	t.Parallel()
	if *update {
		require.NoError(t, os.WriteFile(rulesFile, []byte(rulesDocument()), 0o644))
	}
	got, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	require.Equal(t, rulesDocument(), string(got), "write it again: go test ./internal/workspace/meaning -run Documented -update")
}

func rulesDocument() string {
	var b strings.Builder
	b.WriteString(`# What a change means

Made from the rules of each subject in ` + "`internal/workspace/meaning`" + `; a test compares them. Each statement about a change names its rule.

The direction says what a setting permits after the change: something new (weaker), less (stronger), both (mixed), the same
(neutral), or no rule can tell (unknown). A change with several statements has the worst severity of them. It is mixed if
anything became weaker and anything stronger; weaker stays weaker together with unknown, and stronger together with unknown is unknown.

- **RBAC.** The set of (holder, resource, action), each permitted *for certain*, *perhaps* or not: as ` + "`settings who-can`" + ` has them, by the same model. Holders are
  default roles, custom roles and scopes. ` + "`*`" + ` among the actions of a permission stands for all actions listed by the resource. It is certain that a
  permission counts if a list has its action. It counts perhaps on an action missing from its resource's list and on a resource without a list; and a
  permission on the resource ` + "`*`" + ` counts perhaps for every resource. What becomes certain is weaker, what was certain and is gone is stronger; what only
  may have come or gone is unknown.
- **Passwords.** The sets of passwords accepted when they are set, and of existing ones accepted at log-in. LUDS counts characters and classes. ZXCVBN is
  taken to accept random passwords of 9 characters and more and to refuse patterns of any length, so the two rarely include each other.
- **Countries.** The set of codes. An empty list allows none.
- **Trusted tokens.** Keys are compared by their SHA-256: an id alone changes nothing. A profile without a key accepts nothing, so what changes in it is low.
- **Streaming.** A log going elsewhere is weaker: somebody else sees it, and the one who watched does not. To the destination of a DISABLED config no log
  goes. A destination that the relay itself sets back is rated as the mending that it is: the change that it mends has its own entry.
- **The relay's own configuration.** What is watched, delivered and recorded: taking an environment, a sink or a witness away is weaker.
- **Mail.** The set of places that links lead to, and the set of senders' domains, over all templates of a project. Addresses are read as browsers read them,
  and HTML as any reader might: comments for Outlook, ` + "`<noscript>`" + `, forms, refreshes, and bare domains in text, which mail programs link. What cannot be
  read, and what a placeholder decides, is suspicious. All else is neutral.
- **Lockouts.** Less is permitted, and yet they are high: an attacker who locks administrators out gains time. They are: a default role without any
  certain permission, or without any that counts perhaps where it had no other; rules that no password meets, or hardly any; no country left of those before;
  no trusted token accepted any more; and mail without the links or codes that the service filled in. Removing one profile of several is low, since the users of
  others still log in; removing the last one that has a key is a lockout.
- **People's actions.** The end of an action is judged by what it may break or open, if no setting shows it; its intent is routine.

| rule | direction | severity | what happened | why so severe |
|---|---|---|---|---|
`)
	for _, r := range slices.SortedFunc(maps.Values(rules), func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) }) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.ID, r.Direction, r.Severity, r.Means, r.Reason)
	}
	return b.String()
}

func TestEachRuleIsWhole(t *testing.T) {
	t.Parallel()
	count := len(settingRules) + len(actionRules) - len(streamingRules) // two subjects share these
	for _, s := range subjects {
		count += len(s.rules)
	}
	require.Len(t, rules, count, "two rules have one id")
	for _, r := range rules {
		require.GreaterOrEqual(t, rank(r.Severity), 0, r.ID)
		require.GreaterOrEqual(t, order(r.Direction), 0, r.ID)
		require.NotEmpty(t, r.Means, r.ID)
		require.NotEmpty(t, r.Reason, r.ID)
		_, what, _ := strings.Cut(r.ID, ".")
		if locks := slices.Contains([]string{"lockout", "credential_deleted", "redirect_closed"}, what); (r.Direction == Stronger || r.Direction == Neutral) && !locks {
			require.LessOrEqual(t, rank(r.Severity), rank(Low), "%s: nothing new is permitted, and nobody is locked out", r.ID)
		}
	}
}
