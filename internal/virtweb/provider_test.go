package virtweb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/web/openid"
)

func TestTheProviderOfTheFolder(t *testing.T) {
	whole := map[string]string{"issuer": "https://login.example.com/realm\n", "client-id": "drydock\n", "client-secret": "x\n"}
	for what, test := range map[string]struct {
		change map[string]string
		wrong  string
	}{
		"whole":                       {nil, ""},
		"with scopes":                 {map[string]string{"scopes": "email offline_access"}, ""},
		"without a client's name":     {map[string]string{"client-id": ""}, "client-id"},
		"without its secret":          {map[string]string{"client-secret": ""}, "client-secret"},
		"of an issuer without TLS":    {map[string]string{"issuer": "http://login.example.com"}, "no address of https"},
		"with an empty issuer":        {map[string]string{"issuer": " "}, "is empty"},
		"with an authority of nobody": {map[string]string{"ca.crt": "x"}, "ca.crt has no certificate"},
	} {
		o := mounted(t)
		o.provider = t.TempDir()
		for name, text := range whole {
			write(t, filepath.Join(o.provider, name), text)
		}
		for name, text := range test.change {
			if text == "" {
				if err := os.Remove(filepath.Join(o.provider, name)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			write(t, filepath.Join(o.provider, name), text)
		}
		settings, err := o.settings()
		if test.wrong == "" {
			if provider, is := settings.SignIn.Provider.(*openid.Provider); err != nil || !is || provider == nil {
				t.Errorf("a folder %s: %v, %v", what, provider, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("a folder %s: %v; want %q", what, err, test.wrong)
		}
	}
}

func TestWithoutAProviderPeopleShowATokenOnly(t *testing.T) {
	o := mounted(t)
	o.provider = filepath.Join(t.TempDir(), "missing")
	settings, err := o.settings()
	if err != nil || settings.SignIn.Provider != nil {
		t.Errorf("%v, %v; want none", settings.SignIn, err)
	}
}
