package meaning

import (
	"iter"
	"slices"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// explainCountries compares two sets of country codes. An empty list allows none: the
// document says nothing else.
func explainCountries(c *collector, before, after any) {
	a, b := setOf(slices.Values(stringsOf(before))), setOf(slices.Values(stringsOf(after)))
	for _, code := range sortedUnion(a, b) {
		switch {
		case !a[code]:
			c.add("sms.country_allowed", Statement{
				Sentence: "country " + quote(code) + " allowed", New: jsontext.Encode(code),
				Witness: "numbers in " + quote(code) + " can be texted now",
			})
		case !b[code]:
			c.add("sms.country_refused", Statement{
				Sentence: "country " + quote(code) + " no longer allowed", Old: jsontext.Encode(code),
				Witness: "numbers in " + quote(code) + " can no longer be texted",
			})
		}
	}
	if len(a) > 0 && onlyTexts(after) && disjoint(a, b) {
		c.add("sms.lockout", Statement{
			Sentence: "lockout: no country allowed before is left, so nobody who was texted can be",
			Witness:  "no number that could be texted before can be texted now",
		})
	}
}

// onlyTexts reports whether a value is a list without anything unknown in it.
func onlyTexts(v any) bool {
	list, is := v.([]any)
	return is && len(stringsOf(v)) == len(list)
}

func disjoint(a, b map[string]bool) bool {
	for name := range a {
		if b[name] {
			return false
		}
	}
	return true
}

func setOf(texts iter.Seq[string]) map[string]bool {
	set := map[string]bool{}
	for text := range texts {
		set[text] = true
	}
	return set
}

var countryRules = []Rule{
	{"sms.country_allowed", Weaker, Medium, "Numbers of another country can be texted.", "Texts to more countries cost money, and some are known for fraud."},
	{"sms.country_refused", Stronger, Low, "Numbers of a country can no longer be texted.", "Less is permitted; users there may be locked out."},
	{"sms.lockout", Stronger, High, "None of the countries is left that could be texted before.", "All users who log in by SMS are locked out, perhaps by an attacker."},
}
