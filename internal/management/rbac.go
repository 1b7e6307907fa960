package management

import (
	"context"
	"encoding/json"
	"net/http"
)

// RBACPolicy is the policy of an environment. The fields tagged service_ carry
// the maker's brand on the wire, see Options.RBACPrefix.
type RBACPolicy struct {
	ServiceResources []RBACResource `json:"service_resources"`
	CustomRoles      []RBACRole     `json:"custom_roles"`
	CustomResources  []RBACResource `json:"custom_resources"`
	CustomScopes     []RBACScope    `json:"custom_scopes"`
	ServiceMember    RBACGrants     `json:"service_member"`
	ServiceAdmin     RBACGrants     `json:"service_admin"`
	ServiceUser      RBACGrants     `json:"service_user"`
}

// RBACResource is something that actions are allowed on.
type RBACResource struct {
	ResourceID       string   `json:"resource_id"`
	Description      string   `json:"description"`
	AvailableActions []string `json:"available_actions"`
}

// RBACRole is a role and what it may do.
type RBACRole struct {
	RoleID      string           `json:"role_id"`
	Description string           `json:"description"`
	Permissions []RBACPermission `json:"permissions"`
}

// RBACScope is an OAuth scope and what it may do.
type RBACScope struct {
	Scope       string           `json:"scope"`
	Description string           `json:"description"`
	Permissions []RBACPermission `json:"permissions"`
}

// RBACGrants is what one of the maker's own roles may do.
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

// decodeRBAC gives the branded members their documented names first.
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
