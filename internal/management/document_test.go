package management

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTypesHaveEveryFieldOfTheDocument compares the types with the tables of the
// document's "Resources and their fields" and with the request bodies of "Endpoints": the
// same names, no more and no fewer.
func TestTypesHaveEveryFieldOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		value  any
		fields string
	}{
		{Project{}, "project_slug name vertical created_at"},
		{ProjectUpdate{}, "name"},
		{NewProject{}, "project_name vertical"},
		{RedirectURL{}, "url valid_types"},
		{RedirectType{}, "is_default type"},
		{RedirectURLUpdate{}, "valid_types do_not_promote_defaults"},
		{RBACPolicy{}, "service_resources custom_roles custom_resources custom_scopes service_member service_admin service_user"},
		{RBACRole{}, "role_id description permissions"},
		{RBACScope{}, "scope description permissions"},
		{RBACGrants{}, "permissions"},
		{RBACResource{}, "resource_id description available_actions"},
		{RBACPermission{}, "resource_id actions"},
		{EmailTemplate{}, "template_id name sender_information prebuilt_customization custom_html_customization"},
		{SenderInformation{}, "from_local_part from_domain from_name reply_to_local_part reply_to_name"},
		{PrebuiltCustomization{}, "button_border_radius button_color button_text_color font_family text_alignment"},
		{CustomHTMLCustomization{}, "template_type html_content plaintext_content subject"},
		{TrustedTokenProfile{}, "profile_id name audience issuer pem_files can_jit_provision jwks_url attribute_mapping public_key_type"},
		{PEMFile{}, "pem_file_id public_key"},
		{PasswordStrengthConfig{}, "check_breach_on_creation check_breach_on_authentication validate_on_authentication " +
			"validation_policy luds_min_password_length luds_min_password_complexity"},
		{EventLogStreaming{}, "destination_type destination_config streaming_status"},
		{DestinationConfig{}, "datadog grafana_loki"},
		{DatadogDestination{}, "api_key site api_key_last_four"},
		{GrafanaLokiDestination{}, "hostname username password password_last_four"},
	} {
		assert.ElementsMatch(t, strings.Fields(tc.fields), jsonNames(reflect.TypeOf(tc.value)), "%T", tc.value)
	}
}

func jsonNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
