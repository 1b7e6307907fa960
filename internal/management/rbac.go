package management

import (
	"context"
	"encoding/json"
	"net/http"
)

// RBACPolicy is the policy of an environment. On the wire, the fields tagged service_
// carry the provider's brand: see Options.RBACPrefix.
type RBACPolicy struct {
	ServiceResources []RBACResource `json:"service_resources"`
	CustomRoles      []RBACRole     `json:"custom_roles"`
	CustomResources  []RBACResource `json:"custom_resources"`
	CustomScopes     []RBACScope    `json:"custom_scopes"`
	ServiceMember    RBACGrants     `json:"service_member"`
	ServiceAdmin     RBACGrants     `json:"service_admin"`
	ServiceUser      RBACGrants     `json:"service_user"`
}

// RBACResource is the object of allowed actions.
type RBACResource struct {
	ResourceID       string   `json:"resource_id"`
	Description      string   `json:"description"`
	AvailableActions []string `json:"available_actions"`
}

// RBACRole is a role and its permissions.
type RBACRole struct {
	RoleID      string           `json:"role_id"`
	Description string           `json:"description"`
	Permissions []RBACPermission `json:"permissions"`
}

// RBACScope is an OAuth scope and its permissions.
type RBACScope struct {
	Scope       string           `json:"scope"`
	Description string           `json:"description"`
	Permissions []RBACPermission `json:"permissions"`
}

// RBACGrants are the permissions of one of the provider's own roles.
type RBACGrants struct {
	Permissions []RBACPermission `json:"permissions"`
}

// RBACPermission allows actions on a resource.
type RBACPermission struct {
	ResourceID string   `json:"resource_id"`
	Actions    []string `json:"actions"`
}

// RBACPolicy reads the policy of an environment (operation 4). The answer's
// Raw has the names as on the wire.
func (c *Client) RBACPolicy(ctx context.Context, project, environment string) (Answer[RBACPolicy], error) {
	return fetch(ctx, c, call{
		operation: "read rbac policy", method: http.MethodGet,
		path: environmentPath + "/rbac_policy", params: []string{project, environment},
	}, "policy", c.decodeRBAC)
}

// decodeRBAC first gives the branded members their documented names.
func (c *Client) decodeRBAC(raw json.RawMessage, p *RBACPolicy) error {
	if c.rbacPrefix == "service" {
		return json.Unmarshal(raw, p)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	for _, name := range []string{"_resources", "_member", "_admin", "_user"} {
		if v, ok := members[c.rbacPrefix+name]; ok {
			members["service"+name] = v
		}
	}
	renamed, err := json.Marshal(members)
	if err != nil {
		return err
	}
	return json.Unmarshal(renamed, p)
}
