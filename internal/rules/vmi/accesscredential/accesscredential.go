// Package accesscredential decides which Secrets of a VMI's spec.accessCredentials reach its guest, by which method,
// and which of their lines are SSH keys.
//
// It must not read a Secret or talk to a guest. Tenants write the Secrets, so each reader here has a bound.
package accesscredential

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	v1 "kubevirt.io/api/core/v1"
)

const (
	// MaxCredentials bounds the list in a spec: each entry is a volume of the launcher pod.
	MaxCredentials = 32
	// MaxUsers bounds the users of a credential.
	MaxUsers = 64
	maxKeys  = 512 // in one Secret
	maxKey   = 16 << 10
)

// Source is a Secret mounted into the launcher pod. Index is the credential's position in the spec, which identifies
// its volume.
type Source struct {
	Index  int
	Secret string
}

// Sources returns the Secrets in the order of the spec.
func Sources(spec *v1.VirtualMachineInstanceSpec) []Source {
	return chosen(spec, func(*v1.AccessCredential) bool { return true })
}

// NoCloud returns the Secrets whose SSH keys are in the meta-data of a NoCloud volume.
func NoCloud(spec *v1.VirtualMachineInstanceSpec) []Source {
	return chosen(spec, func(c *v1.AccessCredential) bool {
		return c.SSHPublicKey != nil && c.SSHPublicKey.PropagationMethod.NoCloud != nil
	})
}

// ConfigDrive returns the same for a ConfigDrive volume.
func ConfigDrive(spec *v1.VirtualMachineInstanceSpec) []Source {
	return chosen(spec, func(c *v1.AccessCredential) bool {
		return c.SSHPublicKey != nil && c.SSHPublicKey.PropagationMethod.ConfigDrive != nil
	})
}

func chosen(spec *v1.VirtualMachineInstanceSpec, choose func(*v1.AccessCredential) bool) []Source {
	var list []Source
	for i := range spec.AccessCredentials {
		c := &spec.AccessCredentials[i]
		if secret := secretOf(c); secret != "" && choose(c) {
			list = append(list, Source{Index: i, Secret: secret})
		}
	}
	return list
}

func secretOf(c *v1.AccessCredential) string {
	var source *v1.AccessCredentialSecretSource
	switch {
	case c.SSHPublicKey != nil:
		source = c.SSHPublicKey.Source.Secret
	case c.UserPassword != nil:
		source = c.UserPassword.Source.Secret
	}
	if source == nil {
		return ""
	}
	return source.SecretName
}

// File is one key of a Secret with its value.
type File struct {
	Name string
	Data []byte
}

// Keys returns the SSH public keys in a Secret: one per line of each file, without empty lines and comments. A
// private key is an error, since the guest and every reader of its meta-data would get it.
func Keys(secret string, files []File) ([]string, error) {
	var keys []string
	for _, f := range files {
		for line := range bytes.Lines(f.Data) {
			line = bytes.TrimSpace(line)
			if len(line) == 0 || line[0] == '#' {
				continue
			}
			if !isKey(line) {
				return nil, fmt.Errorf("the Secret %s has something in %s that is no SSH public key: it must have one key a line", secret, f.Name)
			}
			if keys = append(keys, string(line)); len(keys) > maxKeys {
				return nil, fmt.Errorf("the Secret %s has more than %d SSH public keys", secret, maxKeys)
			}
		}
	}
	return keys, nil
}

func isKey(line []byte) bool {
	text := string(line)
	return len(line) <= maxKey && utf8.Valid(line) && !strings.HasPrefix(text, "-----BEGIN") &&
		!strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' })
}

// maxUser is longer than the user names of any system.
const maxUser = 256

// IsUser reports whether name is a plausible user name in a guest, perhaps with a Windows domain.
func IsUser(name string) bool {
	return name != "" && len(name) <= maxUser && utf8.ValidString(name) && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || unicode.IsSpace(r) || unicode.IsControl(r) })
}
