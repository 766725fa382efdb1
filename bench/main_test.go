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
	_, err := choose("api,migrate", all)
	if err == nil || !strings.Contains(err.Error(), `no benchmark "migrate"`) || !strings.Contains(err.Error(), "memory, start, api, scale, up") {
		t.Errorf("what is not there is refused with %v", err)
	}
}
