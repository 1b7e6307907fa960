package meaning

// Rule gives a kind of statement its direction and severity. Each subject has its own, in its file.
type Rule struct {
	ID        string
	Direction Direction
	Severity  Severity
	// Means says what happened, and Reason justifies the severity.
	Means, Reason string
}

// rules are those of all subjects, by id.
var rules = func() map[string]Rule {
	all := map[string]Rule{}
	add := func(some []Rule) {
		for _, r := range some {
			all[r.ID] = r
		}
	}
	add(settingRules)
	add(actionRules)
	for _, s := range subjects {
		add(s.rules)
	}
	return all
}()

// settingRules are for a setting as a whole, and for what no other rule knows.
var settingRules = []Rule{
	{"setting.changed", Unknown, Medium, "A value changed that no rule knows.", "A person has to judge it."},
	{"setting.rewritten", Neutral, Info, "A setting is written differently and means the same.", "It permits the same."},
	{"setting.first_seen", Neutral, Info, "A setting is seen for the first time.", "Nothing is known to have changed."},
	{"setting.back", Unknown, Medium, "A setting is there that was not there before.", "It may permit more than it did before it went."},
	{"setting.returned", Neutral, Info, "A setting is there again.", "What differs from the state before it went is told by statements of its own."},
	{"setting.gone", Unknown, High, "A setting is gone, for example with its environment.", "The environment may be gone, or hidden from the relay."},
}
