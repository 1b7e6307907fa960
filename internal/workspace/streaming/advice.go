package streaming

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// refusal is a PUT that the API refused. It would refuse a repetition too, until a person acts.
type refusal struct {
	of     string // the key of the observation before it
	advice string
}

// forGood reports whether the API refused a PUT because of its config. It would then refuse a
// repetition too.
func forGood(err error) bool {
	var api *management.APIError
	passing := []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}
	return errors.As(err, &api) && api.Refused() && !slices.Contains(passing, api.Status) && !errors.Is(err, management.ErrUnreachable)
}

// key tells observations of different configs apart.
func (o *observation) key() string { return workspace.HashOf(o.raw) + workspace.HashOf(o.second) }

// refusedAdvice is the advice after a refused PUT. No operation of the API
// creates a config or removes one, and the real service's PUT needs one of its type.
func (w *watcher) refusedAdvice(err error) string {
	name, t := w.environment(), w.types[0]
	create := fmt.Sprintf("create a %s destination for its event log in the dashboard, with any host name, user name and secret, and enable it: "+
		"the relay then sets the right ones by itself", t)
	switch shown := w.newest.shape; {
	case shown == nil:
		return fmt.Sprintf("%s has no streaming config, and the API refuses to make one (%s): %s", name, management.CauseOf(err), create)
	case shown.Type != t:
		return fmt.Sprintf("%s streams to %s, and the API refuses to replace it by %s (%s): remove that destination in the dashboard, and %s",
			name, shown.Type, t, management.CauseOf(err), create)
	}
	return fmt.Sprintf("the API refuses the config of %s (%s): correct its stream in the configuration, or the rights of the management key",
		name, management.CauseOf(err))
}

// advice returns advice for a person, by finding; it is empty if there is nothing to do.
func (w *watcher) advice(f Finding, status management.StreamingStatus) string {
	name := w.environment()
	switch f {
	case FindingNotActive:
		if status == management.StatusPending {
			return fmt.Sprintf("the event log of %s is %s: the provider has not begun to send yet, and does so by itself; "+
				"if that lasts for more than a few minutes, ask its support", name, status)
		}
		return fmt.Sprintf("the event log of %s is %s: enable it in the dashboard, as the API has no operation for it; "+
			"events of the time in between are never sent", name, orNoStatus(status))
	case FindingRefused:
		return w.refusal.advice
	case FindingAbsent:
		return fmt.Sprintf("the API knows no environment %s: correct its project and environment slugs in the configuration, or remove it there", name)
	case FindingDiffers:
		if w.mode() == config.ModeObserve {
			return fmt.Sprintf("compare by `auditrelay streaming plan %s`; `auditrelay streaming apply %s` sets the config once, mode: enforce keeps it so", name, name)
		}
	case FindingNotTaken:
		return fmt.Sprintf("the API took the config of %s and shows another one: find out who changes it, another relay or a proxy", name)
	}
	return ""
}

func orNoStatus(s management.StreamingStatus) management.StreamingStatus {
	if s == "" {
		return "without a status"
	}
	return s
}
