package accesscredential

import (
	"bytes"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	v1 "kubevirt.io/api/core/v1"
)

const (
	maxPassword = 1 << 10
	// maxUserKeys bounds the bytes of one user's keys together: they are one agent command.
	maxUserKeys = 1 << 20
)

// Delivery has the credentials for the guest agent.
type Delivery struct {
	Keys      map[string][]string // the complete authorized_keys lines of each user
	Passwords map[string]string
}

// Equal reports whether both set the same credentials.
func (d Delivery) Equal(other Delivery) bool {
	if len(d.Keys) != len(other.Keys) || len(d.Passwords) != len(other.Passwords) {
		return false
	}
	for user, keys := range d.Keys {
		if theirs, there := other.Keys[user]; !there || !slices.Equal(keys, theirs) {
			return false
		}
	}
	for user, password := range d.Passwords {
		if theirs, there := other.Passwords[user]; !there || password != theirs {
			return false
		}
	}
	return true
}

// ByAgent reports whether the guest agent sets any of the credentials.
func ByAgent(spec *v1.VirtualMachineInstanceSpec) bool {
	return KeysByAgent(spec) || PasswordsByAgent(spec)
}

// KeysByAgent reports whether the agent sets SSH keys.
func KeysByAgent(spec *v1.VirtualMachineInstanceSpec) bool {
	return slices.ContainsFunc(spec.AccessCredentials, func(c v1.AccessCredential) bool { return keysByAgent(&c) })
}

// PasswordsByAgent reports whether the agent sets passwords.
func PasswordsByAgent(spec *v1.VirtualMachineInstanceSpec) bool {
	return slices.ContainsFunc(spec.AccessCredentials, func(c v1.AccessCredential) bool { return passwordsByAgent(&c) })
}

func keysByAgent(c *v1.AccessCredential) bool {
	return c.SSHPublicKey != nil && c.SSHPublicKey.PropagationMethod.QemuGuestAgent != nil
}

func passwordsByAgent(c *v1.AccessCredential) bool {
	return c.UserPassword != nil && c.UserPassword.PropagationMethod.QemuGuestAgent != nil
}

// ForAgent returns the credentials for the agent; read returns the files of a Secret. A user gets the keys of all Secrets
// with the user's name. A Secret of passwords has a file for each user.
func ForAgent(spec *v1.VirtualMachineInstanceSpec, read func(Source) ([]File, error)) (Delivery, error) {
	d := Delivery{Keys: map[string][]string{}, Passwords: map[string]string{}}
	for i := range spec.AccessCredentials {
		c := &spec.AccessCredentials[i]
		secret := secretOf(c)
		keys, passwords := keysByAgent(c), passwordsByAgent(c)
		if secret == "" || !keys && !passwords {
			continue
		}
		files, err := read(Source{Index: i, Secret: secret})
		if err != nil {
			return Delivery{}, err
		}
		if keys {
			err = d.addKeys(c.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users, secret, files)
		} else {
			err = d.addPasswords(secret, files)
		}
		if err != nil {
			return Delivery{}, err
		}
	}
	if n := len(d.Keys) + len(d.Passwords); n > MaxUsers {
		return Delivery{}, fmt.Errorf("the access credentials are of %d users, and the guest agent sets those of at most %d", n, MaxUsers)
	}
	return d, nil
}

func (d Delivery) addKeys(users []string, secret string, files []File) error {
	keys, err := Keys(secret, files)
	if err != nil {
		return err
	}
	for _, user := range users {
		all := slices.Clone(d.Keys[user])
		size := 0
		for _, key := range keys {
			if !slices.Contains(all, key) {
				all = append(all, key)
			}
		}
		for _, key := range all {
			size += len(key)
		}
		if len(all) > maxKeys || size > maxUserKeys {
			return fmt.Errorf("the user %s has more than %d SSH public keys, or more than %d bytes of them", user, maxKeys, maxUserKeys)
		}
		d.Keys[user] = all
	}
	return nil
}

func (d Delivery) addPasswords(secret string, files []File) error {
	for _, f := range files {
		// Secrets written by hand often end in a newline.
		password := bytes.TrimRight(f.Data, "\r\n")
		if !IsUser(f.Name) {
			return fmt.Errorf("the Secret %s has something that is no name of a user: each of its keys names one", secret)
		}
		if len(password) == 0 || len(password) > maxPassword || !utf8.Valid(password) || bytes.ContainsFunc(password, unicode.IsControl) {
			return fmt.Errorf("the Secret %s has something for the user %s that is no password: it must be of 1 to %d bytes, and one line", secret, f.Name, maxPassword)
		}
		d.Passwords[f.Name] = string(password)
	}
	return nil
}
