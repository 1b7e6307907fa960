package workspacesim

import "fmt"

// WeakenPasswords lets an environment's users have short passwords, and passwords known from
// breaches, as an administrator might who has been asked for it, or whose account was taken.
func (s *Simulator) WeakenPasswords(projectSlug, environmentSlug string) (Change, error) {
	return s.incident(projectSlug, environmentSlug, ResourcePasswordStrength, func(_ *projectState, e *environment) string {
		c := &e.password
		c.CheckBreachOnCreation, c.CheckBreachOnAuthentication = false, false
		c.ValidationPolicy, c.LUDSMinPasswordLength, c.LUDSMinPasswordComplexity = "LUDS", 6, 1
		return "passwords of 6 letters, and known ones"
	})
}

// PlantLink adds a link to another host to a project's first template, as somebody does who
// phishes for its users.
func (s *Simulator) PlantLink(projectSlug, host string) (Change, error) {
	return s.incident(projectSlug, "", ResourceEmailTemplates, func(p *projectState, _ *environment) string {
		t := &p.templates[0]
		t.CustomHTML.HTMLContent += fmt.Sprintf(`<p>Your session has ended. <a href="https://%s/confirm">Confirm your account</a></p>`, host)
		return "a link to " + host + " in " + t.Name
	})
}

func (s *Simulator) incident(projectSlug, environmentSlug, resource string, edit func(*projectState, *environment) string) (Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, e, err := s.placeOf(projectSlug, environmentSlug, resource)
	if err != nil {
		return Change{}, err
	}
	_, value, _ := editor(p, e, resource)
	return s.changeBy(p, e, resource, func(*maker, int) string { return edit(p, e) }, value), nil
}
