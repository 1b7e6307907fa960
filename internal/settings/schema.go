package settings

import "strings"

// schema says what is known about the order of a JSON value's arrays. Nothing
// is known of what it does not mention; nil knows nothing at all.
type schema struct {
	set    bool   // an array whose order means nothing
	key    string // an array of objects that this member names
	elem   *schema
	fields map[string]*schema
	suffix map[string]*schema // for members whose name only ends so
}

// member returns what is known of an object's member.
func (s *schema) member(name string) *schema {
	if s == nil {
		return nil
	}
	if known, ok := s.fields[name]; ok {
		return known
	}
	for end, known := range s.suffix {
		if strings.HasSuffix(name, end) {
			return known
		}
	}
	return nil
}

func (s *schema) element() *schema {
	if s == nil {
		return nil
	}
	return s.elem
}

// schemas follow "Resources and their fields" of the API's document. The RBAC
// policy's member names that carry the maker's brand are known by their end.
var schemas = map[Kind]*schema{
	RBACPolicy:           rbacSchema(),
	SMSCountryCodes:      {set: true},
	EmailTemplates:       {key: "template_id"},
	TrustedTokenProfiles: {key: "profile_id", elem: &schema{fields: map[string]*schema{"pem_files": {key: "pem_file_id"}}}},
}

func rbacSchema() *schema {
	set := &schema{set: true}
	permissions := &schema{key: "resource_id", elem: &schema{fields: map[string]*schema{"actions": set}}}
	granted := &schema{fields: map[string]*schema{"permissions": permissions}}
	resources := &schema{key: "resource_id", elem: &schema{fields: map[string]*schema{"available_actions": set}}}
	return &schema{
		fields: map[string]*schema{
			"custom_roles":     {key: "role_id", elem: granted},
			"custom_scopes":    {key: "scope", elem: granted},
			"custom_resources": resources,
		},
		suffix: map[string]*schema{"_resources": resources, "_member": granted, "_admin": granted, "_user": granted},
	}
}
