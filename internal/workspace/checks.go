package workspace

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Checks attests the looks at a project or an environment, with and without a finding,
// by an entry from time to time. It is not safe for concurrent use.
type Checks struct {
	Trail                audit.Log
	Project, Environment string
	// Subject is one of its own, so a check never becomes the newest entry of a resource.
	Subject string
	// Type is the type of the entries.
	Type string
	// NotShown are the parts hidden by the API: their changes are in no entry.
	NotShown []string
	// Newest is told of each good look. It may be nil.
	Newest *Newest

	from, until time.Time // of the rounds since the last check
	rounds      int
	resources   map[string]*Checked
	last        time.Time // of the newest check in the trail; zero: not known yet
}

// Check is the Detail of an entry: between From and Until there were Looks rounds. If a
// process crashes before it attests its looks, they are not counted anywhere.
type Check struct {
	From      time.Time           `json:"from"`
	Until     time.Time           `json:"until"`
	Looks     int                 `json:"looks"`
	Resources map[string]*Checked `json:"resources"`
	NotShown  []string            `json:"not_shown"`
}

// Checked counts the looks at a resource.
type Checked struct {
	// Every is the configured time between two looks.
	Every string `json:"every"`
	// Looks and Failures are those since the last check.
	Looks    int `json:"looks"`
	Failures int `json:"failures,omitempty"`
	// LastLook is when the last good look began. SHA256 is the hash of the state it saw: of
	// the canonical JSON in the After of the resource's newest entry. Requests are its ids.
	LastLook time.Time `json:"last_look,omitzero"`
	SHA256   string    `json:"sha256,omitempty"`
	Requests []string  `json:"request_ids,omitempty"`
}

// CheckOf reads the Detail of an entry.
func CheckOf(e audit.Entry) Check {
	var c Check
	if json.Unmarshal(e.Detail, &c) != nil {
		return Check{}
	}
	return c
}

// Agreed is a look that found a resource as the trail's newest entry has it.
type Agreed struct {
	At       time.Time // when it began
	Requests []string  // its ids
	SHA256   string    // of the state, as in a [Checked]
}

// LastAgreed is the latest look that found a resource as in its newest entry: own, the last one
// of this process, or the last one in a check of the same state, or the look that the entry itself
// was made from. Another relay's entry may be younger than own, so that own counts only with the
// same state.
func LastAgreed(ctx context.Context, trail audit.Log, checks string, last audit.Entry, own Agreed) Agreed {
	latest := Agreed{At: last.Time, SHA256: HashOf(last.After)}
	var d struct {
		Look     audit.Window `json:"look"`
		Requests Requests     `json:"request_ids"`
	}
	if json.Unmarshal(last.Detail, &d) == nil { // otherwise there are no requests
		latest.Requests = d.Requests.After
		if !d.Look.After.IsZero() {
			latest.At = d.Look.After
		}
	}
	check, found, err := trail.Last(ctx, last.Project, last.Environment, checks)
	if err == nil && found {
		c := CheckOf(check).Resources[last.Subject]
		if c != nil && c.SHA256 == latest.SHA256 && c.LastLook.After(latest.At) {
			latest.At, latest.Requests = c.LastLook, c.Requests
		}
	}
	if own.SHA256 == latest.SHA256 && own.At.After(latest.At) {
		return own
	}
	return latest
}

// HashOf is the SHA-256 of a state in hex, empty for no state.
func HashOf(raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	return jsontext.Hash(raw)
}

// Watch adds a resource.
func (c *Checks) Watch(name string, every time.Duration) {
	if c.resources == nil {
		c.resources = map[string]*Checked{}
	}
	c.resources[name] = &Checked{Every: every.String()}
}

// Saw counts a good look at a resource.
func (c *Checks) Saw(name string, began time.Time, sha256 string, requests []string) {
	r := c.resources[name]
	r.Looks++
	r.LastLook, r.SHA256, r.Requests = began, sha256, requests
	if c.Newest != nil {
		c.Newest.resources.Store(resource{c.Project, c.Environment, name}, Agreed{At: began, SHA256: sha256})
	}
}

// Failed counts a failed look at a resource.
func (c *Checks) Failed(name string) { c.resources[name].Failures++ }

// Round counts a round of looks.
func (c *Checks) Round(began, ended time.Time) {
	if c.rounds == 0 {
		c.from = began
	}
	c.rounds++
	c.until = ended
}

// saw reports whether any look succeeded since the last check.
func (c *Checks) saw() bool {
	for _, r := range c.resources {
		if c.rounds > 0 && !r.LastLook.IsZero() {
			return true
		}
	}
	return false
}

// Attest enters a check where the last one is at least age old. The first is due a whole
// age after the first look, and a restart puts none off. Where no look succeeded, there is
// nothing to attest: the failures have entries of their own.
//
// If this fails, or its outcome is unknown, the looks stay counted. The next check covers
// them, perhaps again: it says from when.
func (c *Checks) Attest(ctx context.Context, age time.Duration) error {
	if c.last.IsZero() {
		last, found, err := c.Trail.Last(ctx, c.Project, c.Environment, c.Subject)
		if err != nil {
			return fmt.Errorf("read the last check: %w", err)
		}
		if c.last = c.from; found {
			c.last = last.Time
		}
	}
	if !c.saw() || time.Since(c.last) < age {
		return nil
	}
	e, err := audit.Update(ctx, c.Trail, c.Project, c.Environment, c.Subject, func(audit.Entry, bool) (*audit.Entry, error) {
		check := Check{From: c.from, Until: c.until, Looks: c.rounds, Resources: c.resources, NotShown: c.NotShown}
		return &audit.Entry{Type: c.Type, Detail: jsontext.Encode(check)}, nil
	})
	if err != nil {
		return fmt.Errorf("enter a check of %s/%s: %w", c.Project, c.Environment, err)
	}
	c.last, c.rounds = e.Time, 0
	for _, r := range c.resources {
		r.Looks, r.Failures, r.LastLook = 0, 0, time.Time{}
	}
	return nil
}

// Newest has the newest good look of this process at each resource; [Checks] attests the
// looks only from time to time. The zero value is ready, and may be used concurrently.
type Newest struct {
	resources sync.Map // resource to look
}

// resource is one setting of a project, where the environment is empty, or of an environment. Its
// kind is the subject of its entries.
type resource struct{ project, environment, kind string }

// Of is when the newest good look at a resource began, and the hash of the state it saw,
// as in a [Checked]; the zero time if there was none.
func (n *Newest) Of(project, environment, name string) (began time.Time, sha256 string) {
	found, _ := n.resources.Load(resource{project, environment, name})
	l, _ := found.(Agreed)
	return l.At, l.SHA256
}
