package cluster

import "testing"

func TestThePagesOfMetricsAreSummed(t *testing.T) {
	page := "# HELP x\nworkqueue_depth{controller=\"vmi\",name=\"vmi\",priority=\"0\"} 3\nworkqueue_depth{controller=\"vmi\",name=\"vmi\",priority=\"-100\"} 4\nworkqueue_depth{controller=\"vm\"} 9\n"
	if got := Sum(page, "workqueue_depth", `controller="vmi"`); got != 7 {
		t.Errorf("got %g, want 7", got)
	}
}
