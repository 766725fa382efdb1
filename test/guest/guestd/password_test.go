package main

import "testing"

func TestAPasswordIsChangedInItsUsersLineOnly(t *testing.T) {
	const shadow = "root:$6$a:20000:0:99999:7:::\nrooted:$6$b:20000:0:99999:7:::\n"
	got, err := withHash(shadow, "root", "$6$c")
	if want := "root:$6$c:20000:0:99999:7:::\nrooted:$6$b:20000:0:99999:7:::\n"; err != nil || got != want {
		t.Errorf("changed: %q, %v; want %q", got, err, want)
	}
	if got, err := withHash(shadow, "roo", "$6$c"); err == nil {
		t.Errorf("a user who is not there got a password: %q", got)
	}
}
