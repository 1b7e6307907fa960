package workspacesim

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxName bounds a project's name, in characters.
const maxName = 200

// Operation 1.
func (s *Simulator) getProject(c *call) (map[string]any, *apiError) {
	p, fail := s.project(c)
	if fail != nil {
		return nil, fail
	}
	return map[string]any{"project": p.project}, nil
}

// Operation 2.
func (s *Simulator) updateProject(c *call) (map[string]any, *apiError) {
	p, fail := s.project(c)
	if fail != nil {
		return nil, fail
	}
	name := projectName(c.body, "name")
	c.body.done()
	if err := c.body.err(); err != nil {
		return nil, badRequest("%s.", err)
	}
	p.Name = name
	return map[string]any{"project": p.project}, nil
}

// projectName takes a project's name out of o.
func projectName(o *object, field string) string {
	name := o.text(field)
	if utf8.RuneCountInString(name) > maxName {
		o.fail(field, "is longer than 200 characters")
	}
	return name
}

// createProject is POST /v1/projects.
func (s *Simulator) createProject(c *call) (map[string]any, *apiError) {
	name := projectName(c.body, "project_name")
	vertical := c.body.text("vertical")
	if vertical != "" && !slices.Contains(verticals, vertical) {
		c.body.fail("vertical", "must be one of "+strings.Join(verticals, ", "))
	}
	c.body.done()
	if err := c.body.err(); err != nil {
		return nil, badRequest("%s.", err)
	}
	if len(s.projects) >= maxProjects {
		return nil, badRequest("The workspace has %d projects, and may have no more.", maxProjects)
	}
	p := s.addProject(s.freeSlug(name), name, vertical, s.opts.Now().UTC().Format(time.RFC3339))
	return map[string]any{"project": p.project}, nil
}

// Operation 4.
func (s *Simulator) getPolicy(c *call) (map[string]any, *apiError) {
	return ofEnvironment(s, c, "policy", func(e *environment) any { return e.policy })
}

// Operation 8.
func (s *Simulator) getProfiles(c *call) (map[string]any, *apiError) {
	return ofEnvironment(s, c, "profiles", func(e *environment) any { return e.profiles })
}

// Operation 9.
func (s *Simulator) getPasswordStrength(c *call) (map[string]any, *apiError) {
	return ofEnvironment(s, c, "password_strength_config", func(e *environment) any { return e.password })
}

// Operation 10.
func (s *Simulator) getCountryCodes(c *call) (map[string]any, *apiError) {
	return ofEnvironment(s, c, "country_codes", func(e *environment) any { return e.countryCodes })
}

func ofEnvironment(s *Simulator, c *call, field string, get func(*environment) any) (map[string]any, *apiError) {
	e, fail := s.environment(c)
	if fail != nil {
		return nil, fail
	}
	return map[string]any{field: get(e)}, nil
}

// Operation 5.
func (s *Simulator) getEmailTemplates(c *call) (map[string]any, *apiError) {
	p, fail := s.project(c)
	if fail != nil {
		return nil, fail
	}
	return map[string]any{"email_templates": p.templates}, nil
}

// Operation 6.
func (s *Simulator) getDefaultTemplate(c *call) (map[string]any, *apiError) {
	p, kind, fail := s.defaultOf(c)
	if fail != nil {
		return nil, fail
	}
	return map[string]any{"template_id": p.defaults[kind]}, nil
}

// Operation 7.
func (s *Simulator) unsetDefaultTemplate(c *call) (map[string]any, *apiError) {
	if p, kind, fail := s.typeOf(c); fail == nil && s.opts.StrictSettings {
		return nil, s.unsetStrictly(p, kind)
	}
	p, kind, fail := s.defaultOf(c)
	if fail != nil {
		return nil, fail
	}
	delete(p.defaults, kind)
	return nil, nil
}

// defaultOf finds the project and the template type of operations 6 and 7. It fails for a
// type without a default.
func (s *Simulator) defaultOf(c *call) (*projectState, string, *apiError) {
	p, kind, fail := s.typeOf(c)
	if fail == nil && p.defaults[kind] == "" {
		fail = notFound("default_email_template_not_found", "Project %q has no default template of type %s.", p.Slug, kind)
	}
	return p, kind, fail
}

func (s *Simulator) typeOf(c *call) (*projectState, string, *apiError) {
	kind := c.params["email_template_type"]
	if !slices.Contains(emailTemplateTypes, kind) {
		return nil, "", badRequest("email_template_type: %q is not one of %s.", kind, strings.Join(emailTemplateTypes, ", "))
	}
	p, fail := s.project(c)
	return p, kind, fail
}

// Operation 11.
func (s *Simulator) deleteSecret(c *call) (map[string]any, *apiError) {
	e, fail := s.environment(c)
	if fail != nil {
		return nil, fail
	}
	if !remove(&e.secrets, c.params["secret_id"]) {
		return nil, notFound("secret_not_found", "There is no such secret.")
	}
	return nil, nil
}

// Operation 12.
func (s *Simulator) deletePublicToken(c *call) (map[string]any, *apiError) {
	e, fail := s.environment(c)
	if fail != nil {
		return nil, fail
	}
	token := c.params["public_token"]
	if !strings.HasPrefix(token, "public-token-") {
		return nil, badRequest("public_token: a public token begins with \"public-token-\".")
	}
	if !remove(&e.publicTokens, token) {
		return nil, notFound("public_token_not_found", "There is no such public token.")
	}
	return nil, nil
}
