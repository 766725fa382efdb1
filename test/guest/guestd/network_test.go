package main

import (
	"reflect"
	"testing"

	"drydock.dev/drydock/test/guest/cloudconfig"
)

func TestACardIsSetUpInTheOrderThatWorks(t *testing.T) {
	config := cloudconfig.NIC{MTU: 1400, Addresses: []string{"10.0.0.5/24"}, Routes: []cloudconfig.Route{{To: "default", Via: "10.0.0.1"}}}
	want := [][]string{
		{"link", "set", "eth0", "mtu", "1400"},
		{"link", "set", "eth0", "up"},
		{"addr", "add", "10.0.0.5/24", "dev", "eth0"},
		{"route", "add", "default", "via", "10.0.0.1", "dev", "eth0"},
	}
	if got := ipCommands(config, "eth0"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
