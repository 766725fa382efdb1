package credentials

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
)

// virtctl does not import the rules of components. They must accept every byte that it writes into a Secret: one
// refused entry keeps the whole Secret from the guest.
func TestGuestsAreGivenWhatIsWritten(t *testing.T) {
	key := publicKey("ssh-ed25519", "a") + " "
	for more, fits := range map[int]bool{0: true, 1: false} {
		line := key + strings.Repeat("x", maxLine-len(key)+more)
		_, here := parseKeys("value", line)
		_, there := accesscredential.Keys("s", []accesscredential.File{{Name: "k", Data: []byte(line)}})
		if (here == nil) != fits || (there == nil) != fits {
			t.Errorf("a key's line of %d bytes: virtctl says %v, and the guest is given it: %v", len(line), here, there)
		}
		password := strings.Repeat("x", maxPassword+more)
		_, here = (&options{password: password}).readPassword(nil)
		if there = givePassword(password); (here == nil) != fits || (there == nil) != fits {
			t.Errorf("a password of %d bytes: virtctl says %v, and the guest is given it: %v", len(password), here, there)
		}
	}
}

func givePassword(password string) error {
	spec := &v1.VirtualMachineInstanceSpec{AccessCredentials: []v1.AccessCredential{{UserPassword: &v1.UserPasswordAccessCredential{
		Source:            v1.UserPasswordAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: "s"}},
		PropagationMethod: v1.UserPasswordAccessCredentialPropagationMethod{QemuGuestAgent: &v1.QemuGuestAgentUserPasswordAccessCredentialPropagation{}},
	}}}}
	_, err := accesscredential.ForAgent(spec, func(accesscredential.Source) ([]accesscredential.File, error) {
		return []accesscredential.File{{Name: "ann", Data: []byte(password)}}, nil
	})
	return err
}
