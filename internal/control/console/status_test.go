package console

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/health"
)

// The relay chooses, so that a page of many environments costs what it shows.
func TestEnvironmentsAreChosen(t *testing.T) {
	t.Parallel()
	all := []health.Status{
		{Project: "shop", Environment: "a", State: health.Flowing},
		{Project: "shop", Environment: "b", State: health.Silent, Action: "look at the sender"},
		{Project: "shop", Environment: "c", State: health.Silent, Action: "look at the sender", Silenced: true},
		{Project: "bank", Environment: "a", State: health.Late, Action: "look at the clock"},
	}
	for name, c := range map[string]struct {
		choice  ChooseEnvironments
		fitting int
		shown   []string
	}{
		"the worst first":     {ChooseEnvironments{Limit: 9}, 4, []string{"shop/b", "bank/a", "shop/c", "shop/a"}},
		"a part":              {ChooseEnvironments{From: 1, Limit: 2}, 4, []string{"bank/a", "shop/c"}},
		"words in any case":   {ChooseEnvironments{Words: "SHOP/", Limit: 9}, 3, []string{"shop/b", "shop/c", "shop/a"}},
		"a state":             {ChooseEnvironments{State: health.Silent, Limit: 1}, 2, []string{"shop/b"}},
		"one":                 {ChooseEnvironments{Project: "bank", Environment: "a", Limit: 1}, 1, []string{"bank/a"}},
		"none of this name":   {ChooseEnvironments{Project: "bank", Environment: "b", Limit: 1}, 0, nil},
		"none after the last": {ChooseEnvironments{From: 7, Limit: 2}, 4, nil},
		"nonsense":            {ChooseEnvironments{From: -1, Limit: -1}, 4, nil},
	} {
		got := c.choice.of(all)
		var shown []string
		for _, s := range got.Shown {
			shown = append(shown, s.Project+"/"+s.Environment)
		}
		assert.Equal(t, c.shown, shown, name)
		assert.Equal(t, c.fitting, got.Fitting, name)
		assert.Equal(t, [2]int{4, 2}, [2]int{got.All, got.Troubled}, name)
		assert.Equal(t, []StateCount{{health.Silent, 2}, {health.Late, 1}, {health.Flowing, 1}}, got.States, name)
	}
}
