package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// environmentOf is the environment of an action, with the person's reason.
func environmentOf(a *asked) console.OfEnvironment {
	return console.OfEnvironment{Project: a.value("project"), Environment: a.value("environment"), Reason: cut(a.value("reason"), 500)}
}

func backTo(which console.OfEnvironment) string {
	if which.Project == "" {
		return streamingPath
	}
	return streamingPath + "/" + which.String()
}

// differing tells how the streaming config would change.
func differing(a *asked, which console.OfEnvironment) (p plan, err error) {
	p.Head = []string{"Field", "It is", "It would be"}
	err = planned(a, which, func(found *streaming.Preview) {
		for _, f := range found.Fields {
			if f.Differs {
				p.Rows = append(p.Rows, []string{f.Name, f.Is, f.WouldBe})
			}
		}
		if p.Says = []string{"The streaming config of " + which.String() + " is as it is desired."}; found.Differs {
			p.Says, p.Button = []string{"The streaming config of " + which.String() + " would be set at the provider."}, "Set it"
		}
		if found.Advice != "" {
			p.Says = append(p.Says, found.Advice)
		}
	})
	return p, err
}

// planned asks for the plan of an environment's streaming config.
func planned(a *asked, which console.OfEnvironment, yield func(*streaming.Preview)) error {
	return a.client.PlanStreaming(a.ctx, which, func(found console.Planned) error {
		if found.Error != "" {
			return &problem{409, found.Error, "Correct that first."}
		}
		yield(found.Preview)
		return nil
	})
}

func applyStream(a *asked) (prepared, error) {
	which := environmentOf(a)
	return prepared{
		plan: func() (plan, error) { return differing(a, which) },
		do: func() (done, error) {
			_, err := a.client.ApplyStreaming(a.ctx, which)
			return done{"The streaming config of " + which.String() + " is set.", backTo(which)}, err
		},
	}, nil
}

func rotateCredential(a *asked) (prepared, error) {
	which := environmentOf(a)
	return prepared{
		plan: func() (plan, error) {
			p := plan{Head: []string{"User name", "Kind", "Ends in", "State"}, Button: "Rotate it", Says: []string{
				"The relay would generate another push credential for " + which.String() + ", and set it at the provider.",
				"The present one stays valid for streaming.rotation_overlap, so that no push is refused.",
			}}
			if err := planned(a, which, func(*streaming.Preview) {}); err != nil {
				return p, err
			}
			listed, err := a.client.Credentials(a.ctx)
			for _, c := range listed {
				if c.Project == which.Project && c.Environment == which.Environment {
					p.Rows = append(p.Rows, []string{c.Username, c.Kind, c.LastFour, c.State})
				}
			}
			return p, err
		},
		do: func() (done, error) {
			_, err := a.client.Rotate(a.ctx, which)
			return done{"The push credential of " + which.String() + " is rotated.", backTo(which)}, err
		},
	}, nil
}

// addSilence reads a silence; the relay checks it when it is added.
func addSilence(a *asked) (prepared, error) {
	which := environmentOf(a)
	hours, err := strconv.ParseFloat(a.value("hours"), 64)
	if err != nil || !(hours > 0 && hours <= 720) || which.Reason == "" { // it may be no number at all, and is neither then
		return prepared{}, &problem{http.StatusBadRequest, "A silence needs a number of hours, up to 720, and a reason.", remedies[http.StatusBadRequest]}
	}
	s := console.AddSilence{Project: which.Project, Environment: which.Environment, For: int64(hours * 3600), Reason: which.Reason}
	of := cmp.Or(strings.Trim(which.String(), "/"), "All environments")
	return prepared{
		plan: func() (plan, error) {
			return plan{Button: "Silence it", Says: []string{
				fmt.Sprintf("%s would raise no alarm for %s, because: %s", of, time.Duration(s.For)*time.Second, s.Reason),
				"States, events and the audit trail are not hidden.",
			}}, nil
		},
		do: func() (done, error) {
			made, err := a.client.AddSilence(a.ctx, s)
			return done{"The silence " + made.ID + " is added, until " + stampOf(made.Until) + ".", backTo(which)}, err
		},
	}, nil
}

func endSilence(a *asked) (prepared, error) {
	id := a.value("silence")
	return prepared{
		plan: func() (plan, error) {
			list, err := a.client.Silences(a.ctx)
			i := slices.IndexFunc(list, func(s health.Silence) bool { return s.ID == id })
			if err == nil && i < 0 {
				err = &problem{http.StatusNotFound, "No such silence is active.", "It may have ended meanwhile."}
			}
			if err != nil {
				return plan{}, err
			}
			return plan{Button: "End it", Says: []string{fmt.Sprintf("The silence %s, until %s, would end now. Its reason was: %s", list[i].ID, stampOf(list[i].Until), list[i].Reason)}}, nil
		},
		do: func() (done, error) {
			was, err := a.client.EndSilence(a.ctx, console.EndSilence{ID: id})
			return done{"The silence " + was.ID + " is ended.", streamingPath}, err
		},
	}, nil
}
