package main

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlyWhatThereIsCanBeChosen(t *testing.T) {
	all := benchmarks(settings{})
	if got, err := choose("", all); err != nil || len(got) != len(all) {
		t.Errorf("nothing chosen: %v, %v", got, err)
	}
	if got, err := choose("api,start", all); err != nil || !slices.Equal(got, []string{"api", "start"}) {
		t.Errorf("two chosen: %v, %v", got, err)
	}
	for what, want := range map[string]string{
		"api,speed": "those there are, are import, memory, start, hotplug, migrate, snapshot, maintenance, api, idle, scale, up",
	} {
		if _, err := choose(what, all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is refused with %v, want %q in it", what, err, want)
		}
	}
}
