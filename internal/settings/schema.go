package settings

import "github.com/auditrelay/auditrelay/internal/json/jsondiff"

// schemas follow "Resources and their fields" of the API's document. Members of
// the RBAC policy with the maker's brand in their names are known by their end.
var schemas = map[Kind]*jsondiff.Schema{
	RBACPolicy:           rbacSchema(),
	SMSCountryCodes:      {Set: true},
	EmailTemplates:       {Key: "template_id"},
	TrustedTokenProfiles: {Key: "profile_id", Elem: &jsondiff.Schema{Members: map[string]*jsondiff.Schema{"pem_files": {Key: "pem_file_id"}}}},
}

func rbacSchema() *jsondiff.Schema {
	set := &jsondiff.Schema{Set: true}
	permissions := &jsondiff.Schema{Key: "resource_id", Elem: &jsondiff.Schema{Members: map[string]*jsondiff.Schema{"actions": set}}}
	granted := &jsondiff.Schema{Members: map[string]*jsondiff.Schema{"permissions": permissions}}
	resources := &jsondiff.Schema{Key: "resource_id", Elem: &jsondiff.Schema{Members: map[string]*jsondiff.Schema{"available_actions": set}}}
	return &jsondiff.Schema{
		Members: map[string]*jsondiff.Schema{
			"custom_roles":     {Key: "role_id", Elem: granted},
			"custom_scopes":    {Key: "scope", Elem: granted},
			"custom_resources": resources,
		},
		Suffixes: map[string]*jsondiff.Schema{"_resources": resources, "_member": granted, "_admin": granted, "_user": granted},
	}
}
