package workspacesim

// Parts of the seeded RBAC policies.
var (
	seededResources = []rbacResource{
		{"documents", "Documents of the organization", []string{"create", "read", "update", "delete", "share"}},
		{"invoices", "Billing documents and their payment state", []string{"read", "approve", "refund"}},
		{"reports", "Analytics dashboards and exports", []string{"read", "export", "schedule"}},
		{"devices", "Enrolled devices and their certificates", []string{"enroll", "read", "revoke"}},
		{"support_tickets", "Tickets raised by members", []string{"create", "read", "assign", "close"}},
	}
	seededRoles = []struct{ id, description string }{
		{"editor", "Creates and changes content"},
		{"auditor", "Reads everything, changes nothing"},
		{"billing_manager", "Approves and refunds invoices"},
		{"support_agent", "Works on members' tickets"},
	}
)

// policy makes an RBAC policy: the service's own resources and roles, and
// some of a customer's making.
func (m *maker) policy(prefix string) rbacPolicy {
	self := permission{"self", []string{"update.info.name", "update.settings.mfa-enrolled"}}
	p := rbacPolicy{
		prefix: prefix,
		serviceResources: []rbacResource{
			{prefix + ".organization", "The organization itself", []string{"update.info.name", "update.settings.allowed-domains", "delete"}},
			{prefix + ".member", "Members of the organization", []string{"create", "search", "update.info.name", "update.settings.roles", "delete"}},
			{prefix + ".sso", "Single sign-on connections", []string{"create", "update", "delete"}},
		},
		member: grants{[]permission{self}},
		admin:  grants{[]permission{{prefix + ".organization", []string{"*"}}, {prefix + ".member", []string{"*"}}, {prefix + ".sso", []string{"*"}}}},
		user:   grants{[]permission{self}},
	}
	for _, r := range seededResources[:2+m.rng.IntN(len(seededResources)-1)] {
		p.customResources = append(p.customResources, clone(r))
	}
	for _, r := range seededRoles[:2+m.rng.IntN(len(seededRoles)-1)] {
		p.customRoles = append(p.customRoles, role{r.id, r.description, m.permissions(p.customResources)})
	}
	for _, r := range p.customResources[:2] {
		p.customScopes = append(p.customScopes, scope{
			"read:" + r.ResourceID, "Read access to " + r.ResourceID,
			[]permission{{r.ResourceID, []string{"read"}}},
		})
	}
	return p
}

// clone copies r, so each policy changes for itself.
func clone(r rbacResource) rbacResource {
	r.AvailableActions = append([]string(nil), r.AvailableActions...)
	return r
}

// permissions grants the first few actions of some of resources.
func (m *maker) permissions(resources []rbacResource) []permission {
	granted := []permission{}
	for _, r := range resources {
		if m.chance(70) {
			n := 1 + m.rng.IntN(len(r.AvailableActions))
			granted = append(granted, permission{r.ResourceID, append([]string(nil), r.AvailableActions[:n]...)})
		}
	}
	return granted
}
