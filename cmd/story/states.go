package main

// setting is a readable resource held by the wire.
type setting struct{ name, path, field string }

// The settings by the subjects of their entries. Project and default templates are the
// simulator's own: actions change them.
var settings = []setting{
	{"rbac_policy", "/rbac_policy", "policy"},
	{"password_strength_config", "/password_strength_config", "password_strength_config"},
	{"sms_country_codes", "/allowed_country_codes/sms", "country_codes"},
	{"trusted_token_profiles", "/trusted_token_profiles", "profiles"},
	{"email_templates", "/email_templates", "email_templates"},
	{"event_log_streaming", "/event_log_streaming/GRAFANA_LOKI", "event_log_streaming_config"},
}

// firstStates are the states before the first change.
func firstStates() map[string]string {
	return map[string]string{
		"rbac_policy": `{"custom_resources":[
{"resource_id":"documents","description":"Documents","available_actions":["create","read","delete"]},
{"resource_id":"invoices","description":"Invoices","available_actions":["read","pay"]}],
"custom_roles":[
{"role_id":"editor","description":"Edits","permissions":[{"resource_id":"documents","actions":["read","create"]}]},
{"role_id":"auditor","description":"Audits","permissions":[{"resource_id":"invoices","actions":["read"]}]}],
"custom_scopes":[{"scope":"read:documents","description":"Reads","permissions":[{"resource_id":"documents","actions":["read"]}]}],
"service_resources":[],
"service_member":{"permissions":[{"resource_id":"documents","actions":["read"]}]},
"service_admin":{"permissions":[{"resource_id":"documents","actions":["*"]}]},
"service_user":{"permissions":[]}}`,
		"password_strength_config": `{"check_breach_on_creation":true,"check_breach_on_authentication":true,"validate_on_authentication":true,
"validation_policy":"LUDS","luds_min_password_length":12,"luds_min_password_complexity":3}`,
		"sms_country_codes": `["DE","FR","US"]`,
		"trusted_token_profiles": `[{"profile_id":"p-1","name":"Partner","audience":"app","issuer":"https://idp.example.com","jwks_url":"",
"pem_files":[{"pem_file_id":"k-1","public_key":"AAAA"},{"pem_file_id":"k-2","public_key":"BBBB"}],
"can_jit_provision":false,"attribute_mapping":"{}","public_key_type":"PEM"}]`,
		"email_templates": `[{"template_id":"t-1","name":"Login",
"sender_information":{"from_local_part":"login","from_domain":"example.com","from_name":"Example","reply_to_local_part":"help","reply_to_name":"Help"},
"prebuilt_customization":{"button_border_radius":4,"button_color":"#000000","button_text_color":"#ffffff","font_family":"ARIAL","text_alignment":"LEFT"},
"custom_html_customization":{"template_type":"LOGIN","html_content":"<p>Hello</p>\n<a href=\"https://example.com/login\">Log in</a>","plaintext_content":"Log in","subject":"Log in"}},
{"template_id":"t-2","name":"Invite","sender_information":{"from_domain":"example.com"}}]`,
		"event_log_streaming": `{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{"hostname":"loki.example.com","username":"log","password_last_four":"abcd"}},"streaming_status":"ACTIVE"}`,
	}
}
