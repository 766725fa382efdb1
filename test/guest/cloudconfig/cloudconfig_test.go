package cloudconfig

import (
	"reflect"
	"strings"
	"testing"
)

func TestUserDataAreUnderstood(t *testing.T) {
	for _, test := range []struct {
		name, data string
		want       UserData
	}{
		{"nothing", "", UserData{}},
		{"a script", "#!/bin/sh\necho hi\n", UserData{Script: []byte("#!/bin/sh\necho hi\n")}},
		{"a script after empty lines", "\n\n#!/bin/sh\n", UserData{Script: []byte("#!/bin/sh\n")}},
		{
			"a name, a key and a password for the default user",
			"#cloud-config\nhostname: vm\npassword: p\nssh_authorized_keys:\n- k1\n",
			UserData{Hostname: "vm", Keys: []string{"k1"}, Passwords: map[string]string{"guest": "p"}},
		},
		{
			"another default user and a full name",
			"#cloud-config\nuser: fedora\npassword: p\nfqdn: vm.example.org\nchpasswd: {expire: false}\n",
			UserData{Hostname: "vm", User: "fedora", Passwords: map[string]string{"fedora": "p"}},
		},
		{
			"passwords in lines",
			"#cloud-config\nchpasswd:\n  list: |\n    root:a\n    guest:b:c\n",
			UserData{Passwords: map[string]string{"root": "a", "guest": "b:c"}},
		},
		{
			"passwords in a list and by user",
			"#cloud-config\nchpasswd:\n  list: [\"root:a\"]\n  users: [{name: guest, password: b}]\n",
			UserData{Passwords: map[string]string{"root": "a", "guest": "b"}},
		},
		{
			"users, the default one among them",
			"#cloud-config\nusers:\n- default\n- name: ann\n  ssh_authorized_keys: [k]\n  passwd: $6$x\n",
			UserData{Keys: []string{"k"}, Passwords: map[string]string{"ann": "$6$x"}},
		},
		{
			"commands as text and as words",
			"#cloud-config\nruncmd:\n- echo a b\n- [echo, 5]\nbootcmd: [date]\n",
			UserData{Passwords: map[string]string{}, Commands: []Command{
				{"/bin/sh", "-c", "date"}, {"/bin/sh", "-c", "echo a b"}, {"echo", "5"},
			}},
		},
		{
			"files",
			"#cloud-config\nwrite_files: [{path: /a, content: aGk=, encoding: b64, permissions: '0600'}]\n",
			UserData{Passwords: map[string]string{}, Files: []File{
				{Path: "/a", Content: "aGk=", Encoding: "b64", Permissions: "0600"},
			}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseUserData([]byte(test.data))
			if err != nil {
				t.Fatal(err)
			}
			if got.Passwords == nil {
				got.Passwords = map[string]string{}
			}
			if test.want.Passwords == nil {
				test.want.Passwords = map[string]string{}
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got\n%+v, want\n%+v", got, test.want)
			}
		})
	}
}

func TestUserDataThatAreNotUnderstoodAreRefused(t *testing.T) {
	for data, want := range map[string]string{
		"Content-Type: multipart/mixed\n\n": `they begin with "Content-Type: multipart/mixed"`,
		"#cloud-config\nruncmd: {a: 1}\n":   "reading the user data",
		"#cloud-config\n\tbad":              "reading the user data",
	} {
		if _, err := ParseUserData([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v, want %q in it", data, err, want)
		}
	}
}

func TestAFileIsDecodedAsItSays(t *testing.T) {
	data, err := (&File{Path: "/a", Content: "aGk=\n", Encoding: "base64"}).Bytes()
	if err != nil || string(data) != "hi" {
		t.Errorf("got %q, %v", data, err)
	}
	if _, err := (&File{Path: "/a", Encoding: "gz"}).Bytes(); err == nil {
		t.Error("an encoding that is not known was accepted")
	}
	for text, want := range map[string]uint32{"": 0o644, "0755": 0o755, "0o600": 0o600} {
		if mode, err := (&File{Permissions: text}).Mode(); err != nil || mode != want {
			t.Errorf("%q: got %o, %v", text, mode, err)
		}
	}
	if _, err := (&File{Permissions: "rwx"}).Mode(); err == nil {
		t.Error("permissions that are no number were accepted")
	}
}

func TestNetworkDataOfBothVersionsAreUnderstood(t *testing.T) {
	for _, test := range []struct {
		name, data string
		want       []NIC
	}{
		{"nothing", "", nil},
		{
			"version 1, with a netmask",
			`{version: 1, config: [{type: physical, name: eth0, mac_address: "02:00:00:00:00:0A", mtu: 1400,
			  subnets: [{type: static, address: 10.0.0.5, netmask: 255.255.255.0, gateway: 10.0.0.1, dns_nameservers: [9.9.9.9]}]},
			  {type: nameserver, address: 1.1.1.1}]}`,
			[]NIC{{
				Name: "eth0", MAC: "02:00:00:00:00:0a", MTU: 1400, Addresses: []string{"10.0.0.5/24"},
				Routes: []Route{{"default", "10.0.0.1"}}, Nameservers: []string{"9.9.9.9"},
			}},
		},
		{"version 1, DHCP", `{version: 1, config: [{type: physical, name: eth1, subnets: [{type: dhcp4}]}]}`, []NIC{{Name: "eth1", DHCP: true}}},
		{
			"version 2, below network",
			`{network: {version: 2, ethernets: {id0: {match: {macaddress: "02:00:00:00:00:0B"}, addresses: [10.0.0.6/16], gateway4: 10.0.0.1,
			  routes: [{to: 192.168.0.0/16, via: 10.0.0.2}], nameservers: {addresses: [9.9.9.9]}}, eth1: {dhcp4: true}}}}`,
			[]NIC{{Name: "eth1", DHCP: true}, {
				Name: "id0", MAC: "02:00:00:00:00:0b", Addresses: []string{"10.0.0.6/16"},
				Routes: []Route{{"default", "10.0.0.1"}, {"192.168.0.0/16", "10.0.0.2"}}, Nameservers: []string{"9.9.9.9"},
			}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseNetworkData([]byte(test.data))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got\n%+v, want\n%+v", got, test.want)
			}
		})
	}
}

func TestACardIsConfiguredByItsAddressThenByItsNameElseByDHCP(t *testing.T) {
	configs := []NIC{{Name: "eth0", MTU: 1}, {Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 2}}
	for _, test := range []struct {
		name, mac string
		want      NIC
	}{
		{"eth0", "02:00:00:00:00:01", configs[1]},
		{"eth0", "02:00:00:00:00:02", configs[0]},
		{"eth1", "02:00:00:00:00:02", NIC{DHCP: true}},
	} {
		if got := Choose(configs, test.name, test.mac); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %s: got %+v, want %+v", test.name, test.mac, got, test.want)
		}
	}
}
