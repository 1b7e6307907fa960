package workspacesim

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
)

func (m *maker) jwkProfile(projectSlug string) trustedTokenProfile {
	issuer := "https://id." + projectSlug + ".example"
	return trustedTokenProfile{
		ProfileID: m.id("trusted-token-profile"), Name: "Workforce identity provider",
		Audience: "api://" + projectSlug, Issuer: issuer, PEMFiles: []pemFile{}, CanJITProvision: m.chance(50),
		JWKSURL:          issuer + "/.well-known/jwks.json",
		AttributeMapping: `{"email":"email","name":"display_name","groups":"https://id.example/groups"}`,
		PublicKeyType:    "JWK",
	}
}

func (m *maker) pemProfile(projectSlug string) trustedTokenProfile {
	return trustedTokenProfile{
		ProfileID: m.id("trusted-token-profile"), Name: "Legacy mainframe",
		Audience: projectSlug, Issuer: "mainframe." + projectSlug + ".example",
		PEMFiles:         []pemFile{m.pemFile(), m.pemFile()},
		AttributeMapping: `{"email":"mail"}`,
		PublicKeyType:    "PEM",
	}
}

// pemFile makes a public key from the seed. Only Ed25519 keys can be made from one.
func (m *maker) pemFile() pemFile {
	var seed [ed25519.SeedSize]byte
	for i := 0; i < len(seed); i += 8 {
		binary.LittleEndian.PutUint64(seed[i:], m.rng.Uint64())
	}
	der, err := x509.MarshalPKIXPublicKey(ed25519.NewKeyFromSeed(seed[:]).Public())
	if err != nil {
		panic("workspacesim: an Ed25519 key that has no PKIX form: " + err.Error())
	}
	return pemFile{
		PEMFileID: m.id("pem-file"),
		PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	}
}
