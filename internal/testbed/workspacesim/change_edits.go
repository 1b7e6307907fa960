package workspacesim

import (
	"fmt"
	"maps"
	"slices"
)

// edit makes the change with number n and describes it.
type edit func(m *maker, n int) string

// editor returns the edit of a resource, and a function for its value.
func editor(p *projectState, e *environment, resource string) (edit, func() any, bool) {
	switch resource {
	case ResourceProject:
		return p.rename, func() any { return p.project }, true
	case ResourceEmailTemplates:
		return p.editTemplate, func() any { return p.templates }, true
	case ResourceDefaultEmailTemplates:
		return p.editDefaults, func() any { return p.defaults }, true
	case ResourceRBACPolicy:
		return e.editPolicy, func() any { return e.policy }, true
	case ResourceTrustedTokenProfiles:
		return e.editProfile, func() any { return e.profiles }, true
	case ResourcePasswordStrength:
		return e.editPassword, func() any { return e.password }, true
	case ResourceSMSCountryCodes:
		return e.editCountries, func() any { return e.countryCodes }, true
	}
	return nil, nil, false
}

func (p *projectState) rename(m *maker, n int) string {
	p.Name = fmt.Sprintf("%s %s %d", pick(m, []string{"Customer", "Partner", "Member", "Employee"}),
		pick(m, []string{"Portal", "Shop", "Hub", "Desk"}), n)
	return "renamed to " + p.Name
}

func (p *projectState) editTemplate(m *maker, n int) string {
	t := &p.templates[m.rng.IntN(len(p.templates))]
	switch m.rng.IntN(4) {
	case 0:
		t.Prebuilt.ButtonColor = fmt.Sprintf("#%06X", m.rng.IntN(1<<24))
		return "button color of " + t.Name
	case 1:
		t.Sender.FromName = fmt.Sprintf("%s team %d", p.Slug, n)
		return "sender of " + t.Name
	case 2:
		t.CustomHTML.Subject = fmt.Sprintf("Notice %d from {{project_name}}", n)
		return "subject of " + t.Name
	default:
		t.CustomHTML.HTMLContent = fmt.Sprintf("<html><body><p>Hello {{name}},</p><p>revision %d</p></body></html>", n)
		return "html of " + t.Name
	}
}

// editDefaults sets or unsets the default of a type. There are few states, so at times it
// edits a second type.
func (p *projectState) editDefaults(m *maker, _ int) string {
	kind := pick(m, emailTemplateTypes)
	if p.defaults[kind] != "" && m.chance(30) {
		delete(p.defaults, kind)
		return "no default for " + kind
	}
	p.defaults[kind] = pick(m, p.templates).TemplateID
	return "default for " + kind
}

func (e *environment) editPolicy(m *maker, n int) string {
	r := &e.policy.customRoles[m.rng.IntN(len(e.policy.customRoles))]
	switch m.rng.IntN(4) {
	case 0:
		r.Description = fmt.Sprintf("Duties as of revision %d", n)
		return "description of role " + r.RoleID
	case 1:
		r.Permissions = m.permissions(e.policy.customResources)
		return "permissions of role " + r.RoleID
	case 2:
		added := role{fmt.Sprintf("contractor_%d", n), "For one engagement", m.permissions(e.policy.customResources)}
		e.policy.customRoles = append(e.policy.customRoles, added)
		return "added role " + added.RoleID
	default:
		return e.policy.dropRole(m)
	}
}

// dropRole removes a role, except the last one.
func (p *rbacPolicy) dropRole(m *maker) string {
	if len(p.customRoles) < 2 {
		return ""
	}
	i := m.rng.IntN(len(p.customRoles))
	id := p.customRoles[i].RoleID
	p.customRoles = slices.Delete(p.customRoles, i, i+1)
	return "removed role " + id
}

func (e *environment) editProfile(m *maker, n int) string {
	p := &e.profiles[m.rng.IntN(len(e.profiles))]
	switch {
	case p.PublicKeyType == "PEM" && m.chance(50):
		p.PEMFiles = []pemFile{p.PEMFiles[len(p.PEMFiles)-1], m.pemFile()}
		return "rotated a pem file of " + p.Name
	case m.chance(30):
		p.CanJITProvision = !p.CanJITProvision
		return "just-in-time provisioning of " + p.Name
	default:
		p.Audience = fmt.Sprintf("api://%s/v%d", e.project, n)
		return "audience of " + p.Name
	}
}

func (e *environment) editPassword(m *maker, _ int) string {
	c := &e.password
	switch m.rng.IntN(4) {
	case 0:
		c.CheckBreachOnAuthentication = !c.CheckBreachOnAuthentication
		return "breach check on authentication"
	case 1:
		c.ValidateOnAuthentication = !c.ValidateOnAuthentication
		return "validation on authentication"
	case 2:
		c.LUDSMinPasswordComplexity = 1 + m.rng.IntN(4)
		return "least complexity"
	default:
		c.ValidationPolicy = "LUDS"
		c.LUDSMinPasswordLength = 8 + m.rng.IntN(57)
		return "least length"
	}
}

// editCountries adds or removes one country, and keeps at least one.
func (e *environment) editCountries(m *maker, _ int) string {
	code := pick(m, allowedCountries)
	if i := slices.Index(e.countryCodes, code); i >= 0 && len(e.countryCodes) > 1 {
		e.countryCodes = slices.Delete(e.countryCodes, i, i+1)
		return "removed " + code
	}
	set := map[string]struct{}{code: {}}
	for _, c := range e.countryCodes {
		set[c] = struct{}{}
	}
	e.countryCodes = slices.Sorted(maps.Keys(set))
	return "added " + code
}
