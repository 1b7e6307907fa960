package workspacesim

import (
	"slices"
	"sync/atomic"
)

// projectState is a project with all its parts. [Simulator.mu] guards it, except for the
// fields marked otherwise.
type projectState struct {
	project
	templates    []emailTemplate
	defaults     map[string]string // email template type to template id
	environments []*environment
}

// environment is one environment of a project. [Simulator.mu] guards it, except for the
// fields marked otherwise.
type environment struct {
	project, slug string // immutable

	redirects    []redirectURL
	policy       rbacPolicy
	profiles     []trustedTokenProfile
	password     passwordStrength
	countryCodes []string // sorted
	secrets      []string
	publicTokens []string

	streaming *streamingConfig       // nil before the first operation 14
	faults    StreamFaults           // of the stream
	target    atomic.Pointer[target] // read without the lock; nil while nothing is streamed
	stream    *stream                // has locks of its own
}

func (s *Simulator) project(c *call) (*projectState, *apiError) {
	slug := c.params["project_slug"]
	for _, p := range s.projects {
		if p.Slug == slug {
			return p, nil
		}
	}
	return nil, notFound("project_not_found", "There is no project %q.", slug)
}

func (s *Simulator) environment(c *call) (*environment, *apiError) {
	p, fail := s.project(c)
	if fail != nil {
		return nil, fail
	}
	slug := c.params["environment_slug"]
	for _, e := range p.environments {
		if e.slug == slug {
			return e, nil
		}
	}
	return nil, notFound("environment_not_found", "There is no environment %q in project %q.", slug, p.Slug)
}

// setConfig makes c the environment's streaming config; it takes effect at
// once. The caller holds [Simulator.mu].
func (s *Simulator) setConfig(e *environment, c *streamingConfig) {
	e.streaming = c
	e.target.Store(s.targetOf(c, e.faults))
	e.stream.retarget()
}

// remove takes item out of list, and reports whether it was there.
func remove(list *[]string, item string) bool {
	i := slices.Index(*list, item)
	if i < 0 {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}
