package workspacesim

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// The resources for [Simulator.ChangeSomething]. The first three belong to a project, the
// others to an environment.
const (
	ResourceProject               = "project"
	ResourceEmailTemplates        = "email_templates"
	ResourceDefaultEmailTemplates = "default_email_templates"
	ResourceRBACPolicy            = "rbac_policy"
	ResourceTrustedTokenProfiles  = "trusted_token_profiles"
	ResourcePasswordStrength      = "password_strength_config"
	ResourceSMSCountryCodes       = "sms_country_codes"
)

// Resources lists the changeable resources.
func Resources() []string {
	return []string{
		ResourceProject, ResourceEmailTemplates, ResourceDefaultEmailTemplates,
		ResourceRBACPolicy, ResourceTrustedTokenProfiles, ResourcePasswordStrength, ResourceSMSCountryCodes,
	}
}

// Change is one change of one setting, as made by a person at the dashboard.
type Change struct {
	// Number counts from 1.
	Number  int       `json:"number"`
	Time    time.Time `json:"time"`
	Project string    `json:"project_slug"`
	// Environment is empty for a resource of a project.
	Environment string `json:"environment_slug,omitempty"`
	// Resource is one of [Resources].
	Resource string `json:"resource"`
	// Detail describes the change in words.
	Detail string `json:"detail"`
	// Before and After are the value under the answer's resource field (the object
	// "project", "policy" and so on). Of default_email_templates, they are an object of
	// type to template id.
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// ChangeSomething changes one setting, drawn by the seed. The resource gets a state it
// never had in this simulator. Reordering alone is no change.
func (s *Simulator) ChangeSomething() (Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.projects) == 0 {
		return Change{}, fmt.Errorf("change a setting: the workspace has no project")
	}
	m := &maker{rng: s.rng}
	p := pick(m, s.projects)
	return s.change(p, pick(m, p.environments), pick(m, Resources()))
}

// ChangeSetting is ChangeSomething for one resource. It ignores the environment slug for
// a project's resource.
func (s *Simulator) ChangeSetting(projectSlug, environmentSlug, resource string) (Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, e, err := s.placeOf(projectSlug, environmentSlug, resource)
	if err != nil {
		return Change{}, err
	}
	return s.change(p, e, resource)
}

// placeOf finds where a resource is. The caller holds s.mu.
func (s *Simulator) placeOf(projectSlug, environmentSlug, resource string) (*projectState, *environment, error) {
	i := slices.IndexFunc(s.projects, func(p *projectState) bool { return p.Slug == projectSlug })
	if i < 0 {
		return nil, nil, fmt.Errorf("change a setting: there is no project %q", projectSlug)
	}
	p := s.projects[i]
	k := slices.IndexFunc(p.environments, func(e *environment) bool { return e.slug == environmentSlug })
	if k < 0 && !ofProject(resource) {
		return nil, nil, fmt.Errorf("change a setting: there is no environment %q in project %q", environmentSlug, projectSlug)
	}
	return p, p.environments[max(k, 0)], nil
}

func ofProject(resource string) bool {
	return resource == ResourceProject || resource == ResourceEmailTemplates || resource == ResourceDefaultEmailTemplates
}

// Changes returns the changes so far, the oldest first. Of very many it keeps the last
// 10,000 to 20,000.
func (s *Simulator) Changes() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Change{}, s.changes...)
}

// maxTries bounds the search for a new state of a resource. After it, any state different
// from the last will do. keepChanges bounds [Simulator.changes].
const (
	maxTries    = 1000
	keepChanges = 10_000
)

// change changes resource until it is in a new state. The caller holds s.mu.
func (s *Simulator) change(p *projectState, e *environment, resource string) (Change, error) {
	edit, value, ok := editor(p, e, resource)
	if !ok {
		return Change{}, fmt.Errorf("change a setting: there is no resource %q", resource)
	}
	return s.changeBy(p, e, resource, edit, value), nil
}

// changeBy makes an edit until the resource's value is new.
func (s *Simulator) changeBy(p *projectState, e *environment, resource string, edit edit, value func() any) Change {
	c := Change{Number: s.changed + 1, Time: s.opts.Now(), Project: p.Slug, Resource: resource}
	if !ofProject(resource) {
		c.Environment = e.slug
	}
	m := &maker{rng: s.rng}
	c.Before = rawJSON(value())
	s.isNew(&c, c.Before)
	for try := 0; ; try++ {
		c.Detail = edit(m, c.Number)
		c.After = rawJSON(value())
		if s.isNew(&c, c.After) || try > maxTries && !bytes.Equal(c.Before, c.After) {
			break
		}
	}
	s.record(c)
	return c
}

// record keeps c and logs it.
func (s *Simulator) record(c Change) {
	s.changed++
	if len(s.changes) >= 2*keepChanges {
		s.changes = slices.Delete(s.changes, 0, len(s.changes)-keepChanges)
	}
	s.changes = append(s.changes, c)
	s.log.Info("setting changed", slog.String("project", c.Project), slog.String("environment", c.Environment),
		slog.String("resource", c.Resource), slog.String("detail", c.Detail))
}

// rawJSON is v in the form of the API's answers.
func rawJSON(v any) json.RawMessage { return bytes.TrimSpace(encode(0, v).body) }

// isNew records a state of a resource, and reports whether it is the first time.
func (s *Simulator) isNew(c *Change, state json.RawMessage) bool {
	key := sha256.Sum256([]byte(c.Project + "/" + c.Environment + "/" + c.Resource + string(state)))
	_, had := s.seen[key]
	s.seen[key] = struct{}{}
	return !had
}
