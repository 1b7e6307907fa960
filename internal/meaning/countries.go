package meaning

import "github.com/auditrelay/auditrelay/internal/json/jsondiff"

// explainCountries compares two sets of country codes. An empty list allows none: the
// document says nothing else.
func explainCountries(c *collector, before, after any) {
	a, b := setOf(before), setOf(after)
	for _, code := range sortedUnion(a, b) {
		switch {
		case !a[code]:
			c.add("sms.country_allowed", func() Statement {
				return Statement{
					Sentence: "country " + quote(code) + " allowed", New: jsondiff.Encode(code),
					Witness: "numbers in " + quote(code) + " can be texted now",
				}
			})
		case !b[code]:
			c.add("sms.country_refused", func() Statement {
				return Statement{
					Sentence: "country " + quote(code) + " no longer allowed", Old: jsondiff.Encode(code),
					Witness: "numbers in " + quote(code) + " can no longer be texted",
				}
			})
		}
	}
}

func setOf(v any) map[string]bool {
	set := map[string]bool{}
	for _, s := range stringsOf(v) {
		set[s] = true
	}
	return set
}
