package audit

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAPersonIsShownWithHowItIsKnown(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Person{
		"ann@desk":                            {User: "ann", Host: "desk"},
		"root@r (claims ann@x)":               {User: "root", Host: "r", Claimed: "ann@x"},
		`root@r (claims "x) root@r")`:         {User: "root", Host: "r", Claimed: "x) root@r"},
		"ann@login.example.com (by oidc)":     {User: "ann", Host: "login.example.com", By: ByOIDC, Subject: "7"},
		"ann@shop.example (by oidc)":          {User: "ann@shop.example", Host: "login.example.com", By: ByOIDC},
		`"Ann (by link)@ca" (by certificate)`: {User: "Ann (by link)", Host: "ca", By: ByCertificate},
		"ann@desk (by link)":                  {User: "ann", Host: "desk", By: ByLink},
	} {
		assert.Equal(t, want, p.String())
	}
}
