// Package cloudconfig reads the user data and network data of cloud-init, as far as a test's guest follows them. It must
// not change the guest: guestd does. Only guestd may import it.
package cloudconfig

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// UserData has the requests that this guest understands.
type UserData struct {
	// Script is the whole of user data that begin with #!.
	Script   []byte
	Hostname string
	// User is "" for guest.
	User      string
	Keys      []string
	Passwords map[string]string
	Files     []File
	Commands  []Command
}

// File is a file that is written before the user's script and commands run.
type File struct {
	Path        string `json:"path"`
	Content     string `json:"content"`
	Encoding    string `json:"encoding"`
	Permissions string `json:"permissions"`
	Append      bool   `json:"append"`
}

// Command is a line for the shell, or a program with its arguments.
type Command []string

// UnmarshalJSON reads both forms of a command.
func (c *Command) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = Command{"/bin/sh", "-c", text}
		return nil
	}
	var words []any
	if err := json.Unmarshal(data, &words); err != nil {
		return fmt.Errorf("reading a command: %w", err)
	}
	for _, word := range words {
		*c = append(*c, fmt.Sprint(word))
	}
	return nil
}

// cloudConfig is the part of cloud-init's configuration that this guest supports.
type cloudConfig struct {
	Hostname string      `json:"hostname"`
	FQDN     string      `json:"fqdn"`
	User     string      `json:"user"`
	Password string      `json:"password"`
	Keys     []string    `json:"ssh_authorized_keys"`
	ChPasswd passwords   `json:"chpasswd"`
	Users    []cloudUser `json:"users"`
	Files    []File      `json:"write_files"`

	BootCommands []Command `json:"bootcmd"`
	RunCommands  []Command `json:"runcmd"`
}

// passwords holds chpasswd's list in its old form, lines of user:password, and in the new.
type passwords struct {
	List  lines `json:"list"`
	Users []struct {
		Name     string `json:"name"`
		Password string `json:"password"`
	} `json:"users"`
}

// cloudUser is a user of the list "users"; "default" stands for the default user and has no other fields.
type cloudUser struct {
	Name     string   `json:"name"`
	Keys     []string `json:"ssh_authorized_keys"`
	Password string   `json:"plain_text_passwd"`
	Hash     string   `json:"passwd"`
}

// UnmarshalJSON reads a user, or the word "default".
func (u *cloudUser) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &u.Name) == nil {
		return nil
	}
	type plain cloudUser
	return json.Unmarshal(data, (*plain)(u))
}

// lines is a list that may also be written as one text.
type lines []string

// UnmarshalJSON reads both forms of the list.
func (l *lines) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*l = strings.Split(strings.TrimSpace(text), "\n")
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// DefaultUser is the user of a password without a name, unless the user data name another.
const DefaultUser = "guest"

// ParseUserData reads user data: a script, or cloud-init's configuration.
func ParseUserData(data []byte) (UserData, error) {
	data = bytes.TrimLeft(data, " \t\r\n")
	switch {
	case len(data) == 0:
		return UserData{}, nil
	case bytes.HasPrefix(data, []byte("#!")):
		return UserData{Script: data}, nil
	case !bytes.HasPrefix(data, []byte("#cloud-config")):
		first, _, _ := strings.Cut(string(data), "\n")
		return UserData{}, fmt.Errorf("reading the user data: they begin with %q, neither #! nor #cloud-config", first)
	}
	var config cloudConfig
	if err := yaml.Unmarshal(data, &config); err != nil {
		return UserData{}, fmt.Errorf("reading the user data: %w", err)
	}
	return config.userData(), nil
}

func (c cloudConfig) userData() UserData {
	user := UserData{
		Hostname:  c.Hostname,
		User:      c.User,
		Keys:      c.Keys,
		Passwords: map[string]string{},
		Files:     c.Files,
		Commands:  append(c.BootCommands, c.RunCommands...),
	}
	if user.Hostname == "" {
		user.Hostname, _, _ = strings.Cut(c.FQDN, ".")
	}
	if c.Password != "" {
		user.Passwords[user.UserName()] = c.Password
	}
	for _, entry := range c.ChPasswd.List {
		if name, password, both := strings.Cut(strings.TrimSpace(entry), ":"); both {
			user.Passwords[name] = password
		}
	}
	for _, entry := range c.ChPasswd.Users {
		user.Passwords[entry.Name] = entry.Password
	}
	for _, entry := range c.Users {
		user.Keys = append(user.Keys, entry.Keys...)
		switch {
		case entry.Password != "":
			user.Passwords[entry.Name] = entry.Password
		case entry.Hash != "":
			user.Passwords[entry.Name] = entry.Hash
		}
	}
	return user
}

// UserName returns the default user: that of a password without a name.
func (u *UserData) UserName() string {
	if u.User == "" {
		return DefaultUser
	}
	return u.User
}

// Bytes returns the decoded content.
func (f *File) Bytes() ([]byte, error) {
	switch f.Encoding {
	case "", "text/plain":
		return []byte(f.Content), nil
	case "b64", "base64":
		data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(f.Content))
		if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", f.Path, err)
		}
		return data, nil
	default:
		return nil, fmt.Errorf("decoding %s: this guest does not know the encoding %q", f.Path, f.Encoding)
	}
}

// Mode returns the permissions, which are octal.
func (f *File) Mode() (uint32, error) {
	if f.Permissions == "" {
		return 0o644, nil
	}
	mode, err := strconv.ParseUint(strings.TrimPrefix(f.Permissions, "0o"), 8, 12)
	if err != nil {
		return 0, fmt.Errorf("reading the permissions of %s: %w", f.Path, err)
	}
	return uint32(mode), nil
}
