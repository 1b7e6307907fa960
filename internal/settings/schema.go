package settings

import "github.com/auditrelay/auditrelay/internal/audit"

// schemas follow "Resources and their fields" of the API's document. Members of
// the RBAC policy with the maker's brand in their names are known by their end.
var schemas = map[Kind]*audit.Schema{
	RBACPolicy:           rbacSchema(),
	SMSCountryCodes:      {Set: true},
	EmailTemplates:       {Key: "template_id"},
	TrustedTokenProfiles: {Key: "profile_id", Elem: &audit.Schema{Members: map[string]*audit.Schema{"pem_files": {Key: "pem_file_id"}}}},
}

func rbacSchema() *audit.Schema {
	set := &audit.Schema{Set: true}
	permissions := &audit.Schema{Key: "resource_id", Elem: &audit.Schema{Members: map[string]*audit.Schema{"actions": set}}}
	granted := &audit.Schema{Members: map[string]*audit.Schema{"permissions": permissions}}
	resources := &audit.Schema{Key: "resource_id", Elem: &audit.Schema{Members: map[string]*audit.Schema{"available_actions": set}}}
	return &audit.Schema{
		Members: map[string]*audit.Schema{
			"custom_roles":     {Key: "role_id", Elem: granted},
			"custom_scopes":    {Key: "scope", Elem: granted},
			"custom_resources": resources,
		},
		Suffixes: map[string]*audit.Schema{"_resources": resources, "_member": granted, "_admin": granted, "_user": granted},
	}
}
