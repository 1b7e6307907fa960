package workspacesim

import (
	"slices"
	"strings"
)

// Operation 3. The query parameter "url" names the redirect URL; without it the
// environment's first one is meant.
func (s *Simulator) updateRedirectURL(c *call) (map[string]any, *apiError) {
	e, fail := s.environment(c)
	if fail != nil {
		return nil, fail
	}
	i := 0
	if c.query.Has("url") {
		i = slices.IndexFunc(e.redirects, func(r redirectURL) bool { return r.URL == c.query.Get("url") })
	}
	if i < 0 {
		return nil, notFound("redirect_url_not_found", "There is no redirect URL %q.", c.query.Get("url"))
	}
	types := validTypes(c.body)
	keepDefaults := c.body.boolean("do_not_promote_defaults")
	c.body.done()
	if err := c.body.err(); err != nil {
		return nil, badRequest("%s.", err)
	}
	setValidTypes(e.redirects, i, types, !keepDefaults)
	return map[string]any{"redirect_url": e.redirects[i]}, nil
}

// validTypes takes operation 3's valid_types out of o.
func validTypes(o *object) []validType {
	types := []validType{}
	for _, item := range o.objects("valid_types") {
		v := validType{Type: item.text("type"), IsDefault: item.boolean("is_default")}
		item.done()
		switch {
		case v.Type != "" && !slices.Contains(redirectTypes, v.Type):
			item.fail("type", "must be one of "+strings.Join(redirectTypes, ", "))
		case slices.ContainsFunc(types, func(t validType) bool { return t.Type == v.Type }):
			item.fail("type", "is given twice")
		}
		types = append(types, v)
	}
	return types
}

// setValidTypes gives redirects[i] its types. A type has at most one default URL: a new
// one replaces the old. If redirects[i] is a type's default no more, promote makes the
// next URL of the type the default.
func setValidTypes(redirects []redirectURL, i int, types []validType, promote bool) {
	before := redirects[i].ValidTypes
	redirects[i].ValidTypes = types
	for _, t := range types {
		if t.IsDefault {
			unsetDefaults(redirects, i, t.Type)
		}
	}
	for _, t := range before {
		if t.IsDefault && promote && !slices.Contains(types, t) {
			promoteNext(redirects, i, t.Type)
		}
	}
}

func unsetDefaults(redirects []redirectURL, but int, kind string) {
	for i := range redirects {
		for k := range redirects[i].ValidTypes {
			if t := &redirects[i].ValidTypes[k]; i != but && t.Type == kind {
				t.IsDefault = false
			}
		}
	}
}

func promoteNext(redirects []redirectURL, but int, kind string) {
	for i := range redirects {
		for k := range redirects[i].ValidTypes {
			if t := &redirects[i].ValidTypes[k]; i != but && t.Type == kind {
				t.IsDefault = true
				return
			}
		}
	}
}
