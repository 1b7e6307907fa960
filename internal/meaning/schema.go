package meaning

import "github.com/auditrelay/auditrelay/internal/json/jsondiff"

// The subjects with rules, as they stand in the trail.
const (
	project           = "project"
	emailTemplates    = "email_templates"
	defaultTemplates  = "default_email_templates"
	rbacPolicy        = "rbac_policy"
	tokenProfiles     = "trusted_token_profiles"
	passwordStrength  = "password_strength_config"
	smsCountries      = "sms_country_codes"
	eventLogStreaming = "event_log_streaming"
	secondStreaming   = "event_log_streaming_second"
)

var subjects = map[string]subject{
	project:          {shape: fixed(projectShape), explain: explainProject},
	emailTemplates:   {schema: &jsondiff.Schema{Key: "template_id"}, shape: fixed(templatesShape), explain: explainTemplates},
	defaultTemplates: {shape: anyMember, explain: explainDefaults},
	rbacPolicy:       {schema: rbacSchema(), shape: rbacShape, explain: explainRBAC},
	tokenProfiles:    {schema: profilesSchema, shape: fixed(profilesShape), explain: explainProfiles},
	passwordStrength: {shape: fixed(passwordShape), explain: explainPassword},
	smsCountries:     {schema: &jsondiff.Schema{Set: true}, shape: fixed(list(text)), explain: explainCountries},
	// Without a config the event log goes nowhere.
	eventLogStreaming: {shape: streamingShape, explain: explainStreaming, optional: true},
	secondStreaming:   {shape: streamingShape, explain: explainStreaming, optional: true},
	// Everything in it is explained.
	RelayConfiguration: {shape: fixed(anything), explain: explainRelay},
}

func fixed(s *shape) func(any) *shape { return func(any) *shape { return s } }

// Schema marks the reorderable lists of a subject's state, by "Resources and their
// fields" of the API's document. Members of the RBAC policy with the provider's brand in
// their names are known by their end. It is nil for a state whose order counts.
func Schema(subject string) *jsondiff.Schema { return subjects[subject].schema }

var profilesSchema = &jsondiff.Schema{Key: "profile_id", Elem: &jsondiff.Schema{
	Members: map[string]*jsondiff.Schema{"pem_files": {Key: "pem_file_id"}},
}}

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
