package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// UnmarshalText reads the word observe.
func (s *Stream) UnmarshalText(text []byte) error {
	if string(text) != "observe" {
		return errors.New("must be the word observe, or one of relay, datadog and grafana_loki with fields")
	}
	s.Observe = true
	return nil
}

// SettingKinds are the names of the kinds of settings that the relay watches, sorted.
func SettingKinds() (names []string) {
	for _, s := range kinds.All() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// streamingRequests is how many requests it takes to look at a streaming config: one per
// destination type.
const streamingRequests = 2

// Round is the work of looking at the workspace.
type Round struct {
	// Requests is how many requests it takes to look at every setting.
	Requests int
	// Takes is how long these take while the streaming configs are looked at as well.
	Takes time.Duration
	// PerSecond is how many requests all looks together need, at their intervals.
	PerSecond float64
}

// Projects lists the projects of the environments, each once.
func (c *Config) Projects() []string {
	var all []string
	for _, e := range c.Environments {
		if !slices.Contains(all, e.Project) {
			all = append(all, e.Project)
		}
	}
	return all
}

// Round returns the work of looking at the workspace, which is zero without a workspace.
func (c *Config) Round() Round {
	if c.Workspace == nil {
		return Round{}
	}
	var r Round
	projects, streams := map[string]bool{}, 0
	for _, e := range c.Environments {
		if e.Stream != nil || !e.SkipSettings {
			streams++
		}
		if c.Settings.Disabled || e.SkipSettings {
			continue
		}
		if !projects[e.Project] {
			projects[e.Project] = true
			r.add(kinds.Of(true), c.Settings)
		}
		r.add(kinds.Of(false), c.Settings)
	}
	streaming := float64(streams*streamingRequests) / cmp.Or(c.Streaming.Interval, time.Minute).Seconds()
	r.PerSecond += streaming
	// The settings give way to the streaming configs, and keep a fifth in any case.
	allowed := cmp.Or(c.Workspace.RequestsPerSecond, 5)
	left := max(allowed-streaming, allowed/5)
	r.Takes = time.Duration(float64(r.Requests) / left * float64(time.Second)).Round(time.Second)
	return r
}

func (r *Round) add(watched []kinds.Setting, s Settings) {
	for _, kind := range watched {
		r.Requests += kind.Requests()
		r.PerSecond += float64(kind.Requests()) / s.Every(kind.Name).Seconds()
	}
}

// Every is the time from one look at a kind of setting to the next.
func (s Settings) Every(kind string) time.Duration {
	if d, ok := s.Intervals[kind]; ok {
		return d
	}
	return cmp.Or(s.Interval, 5*time.Minute)
}

// String is a line of text. It is empty if nothing is looked at.
func (r Round) String() string {
	if r.PerSecond == 0 {
		return ""
	}
	return fmt.Sprintf("a look at all settings: %d requests in %v; all looks need %.1f requests per second", r.Requests, r.Takes, r.PerSecond)
}

// watching checks the intervals, and that there is enough time for everything in them.
func (k *checker) watching(c *Config) {
	for _, kind := range slices.Sorted(maps.Keys(c.Settings.Intervals)) {
		at := join("settings.intervals", kind)
		k.failIf(!slices.Contains(SettingKinds(), kind), at, nil, "is no kind of setting: they are "+strings.Join(SettingKinds(), ", "))
		if d := c.Settings.Intervals[kind]; d <= 0 {
			k.fail(at, d, "must be positive")
		}
	}
	if len(k.errors) > 0 || c.Workspace == nil {
		return
	}
	if r := c.Round(); r.PerSecond > 1.001*c.Workspace.RequestsPerSecond {
		k.warn("workspace.requests_per_second", fmt.Sprintf(
			"the looks at %d environments need %.1f requests per second, and %v are allowed: a look at all settings takes %v, longer than their intervals; "+
				"raise it, or settings.interval, or settings.intervals of single kinds",
			len(c.Environments), r.PerSecond, c.Workspace.RequestsPerSecond, r.Takes))
	}
}
