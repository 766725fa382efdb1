package upload

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/types"
)

// tokenLife is how long an upload may be started with a token.
const tokenLife = 5 * time.Minute

// Issuer and audience keep a token for another purpose from being accepted.
const (
	issuer   = "virt-api.kubevirt"
	audience = "cdi-uploadproxy"
)

// grant is the right to fill exactly this claim.
type grant struct {
	Namespace string    `json:"namespace"`
	PVC       string    `json:"pvc"`
	UID       types.UID `json:"uid"`
}

func (g grant) claim() types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: g.PVC}
}

func (g grant) sign(ring keyring, now time.Time) (string, error) {
	name, _ := ring.newest()
	key := jose.SigningKey{Algorithm: jose.HS256, Key: ring[name]}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", name))
	if err != nil {
		return "", fmt.Errorf("signing an upload token: %w", err)
	}
	token, err := jwt.Signed(signer).Claims(g).Claims(jwt.Claims{
		Issuer: issuer, Audience: jwt.Audience{audience},
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(tokenLife)),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("signing an upload token: %w", err)
	}
	return token, nil
}

var errBadToken = errors.New("the token is not one of this proxy; ask for a new one by an UploadTokenRequest")

func parse(text string) (*jwt.JSONWebToken, error) {
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.HS256})
	if err != nil || len(token.Headers) != 1 {
		return nil, errBadToken
	}
	return token, nil
}

func verify(ring keyring, text string, now time.Time) (grant, error) {
	token, err := parse(text)
	if err != nil {
		return grant{}, err
	}
	key := ring[token.Headers[0].KeyID]
	if len(key) != keySize {
		return grant{}, errBadToken
	}
	allowed, claims := grant{}, jwt.Claims{}
	if err := token.Claims(key, &allowed, &claims); err != nil {
		return grant{}, errBadToken
	}
	err = claims.ValidateWithLeeway(jwt.Expected{Issuer: issuer, AnyAudience: jwt.Audience{audience}, Time: now}, time.Minute)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return grant{}, fmt.Errorf("the token was good for %s and has expired; ask for a new one by an UploadTokenRequest", tokenLife)
	case err != nil || claims.Expiry == nil:
		return grant{}, errBadToken
	}
	return allowed, nil
}
