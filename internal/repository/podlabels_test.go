package repository

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podlabels"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// ofPods are the labels of pods that code reads or selects by, in the code's spelling.
var ofPods = map[string]string{
	"v1.AppLabel": v1.AppLabel, "v1.CreatedByLabel": v1.CreatedByLabel, "v1.MigrationJobLabel": v1.MigrationJobLabel,
	"launcherpod.NameLabel": launcherpod.NameLabel, "NameLabel": launcherpod.NameLabel,
	"launcherpod.KeptLabel": launcherpod.KeptLabel, "KeptLabel": launcherpod.KeptLabel,
	"layout.MaintenanceForLabel": layout.MaintenanceForLabel,
	"datavolume.LabelComponent":  datavolume.LabelComponent, "datavolume.LabelService": datavolume.LabelService,
	"launcherpod.ClaimLabel(claim)": layout.ClaimLabel("a"), "ClaimLabel(claim)": layout.ClaimLabel("a"),
	"layout.ClaimLabel(claim)": layout.ClaimLabel("a"), "layout.ClaimLabel(claim.Name)": layout.ClaimLabel("a"),
}

// notOfPods are labels of other objects, or of pods that are not Drydock's guests and workers, with the object that has
// them.
var notOfPods = map[string]string{
	"layout.SELinuxLabel": "a node", "layout.PostCopyLabel": "a node", "v1.NodeSchedulable": "a node",
	"DrainLabel": "a DataVolume", "DebugLogsLabel": "a VMI", "layout.MaintenanceLabel": "a VM or a VMI",
	"LabelApp": "a claim", "SourceNameLabel": "a claim", "SourceNamespaceLabel": "a claim",
	"oursLabel": "a CustomResourceDefinition", "vmcontroller.RevisionLabel": "a ControllerRevision",
	"VendorLabel": "an instance type", "label": "a role for users", "v1.OutdatedLauncherImageLabel": "a VMI",
	"key":                           "one of hotplugpod.Labels, which are listed",
	"v1.AutoMemoryLimitsRatioLabel": "a namespace",
	"v1.VirtualMachineLabel":        "a VMI", "v1.NodeNameLabel": "a VMI",
	"v1.MigrationTargetNodeNameLabel": "a VMI",
}

// TestTheLabelsOfPodsThatRulesGoByAreListed finds each label that a rule, a loop or a selector reads. Those of pods
// must be in the list of package podlabels, which the policy protects.
func TestTheLabelsOfPodsThatRulesGoByAreListed(t *testing.T) {
	modules, found := moduleFolders(t), map[string]string{}
	for dir, files := range parsedPackages(t) {
		if moduleOf(dir, modules) != "" || !slices.ContainsFunc([]string{"internal/rules/", "internal/controller", "internal/handler", "internal/api"},
			func(place string) bool { return strings.HasPrefix(dir, place) }) {
			continue
		}
		for _, file := range files {
			if file.test {
				continue
			}
			for _, key := range labelsOf(file.File) {
				found[key] = dir
			}
		}
	}
	for key, dir := range found {
		label, is := ofPods[key]
		switch {
		case is && !podlabels.IsLabel(label):
			t.Errorf("%s goes by the label %s of pods (%s), which package podlabels does not list", dir, label, key)
		case !is && notOfPods[key] == "":
			t.Errorf("%s goes by the label %s: is it one of pods? List it in package podlabels and here, or say here what it is on", dir, key)
		}
	}
	for key := range notOfPods {
		if found[key] == "" {
			t.Errorf("nobody goes by %s any more: take it off the list", key)
		}
	}
	if len(found) < 15 {
		t.Errorf("only %d labels are found: the test looks for the wrong thing", len(found))
	}
}

// labelsOf returns the keys by which a file reads or selects labels: of X.Labels[key], X.GetLabels()[key], of selectors
// that are maps, and of requirements.
func labelsOf(file *ast.File) []string {
	var keys []string
	written := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				written[left] = n.Tok == token.ASSIGN
			}
		case *ast.IndexExpr:
			if x := types.ExprString(n.X); !written[n] && (strings.HasSuffix(x, ".Labels") || strings.HasSuffix(x, ".GetLabels()")) {
				keys = append(keys, types.ExprString(n.Index))
			}
		case *ast.CompositeLit:
			if named(n.Type, "client", "MatchingLabels") || named(n.Type, "labels", "Set") {
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						keys = append(keys, types.ExprString(pair.Key))
					}
				}
			}
		case *ast.CallExpr:
			if named(n.Fun, "labels", "NewRequirement") {
				keys = append(keys, types.ExprString(n.Args[0]))
			}
		}
		return true
	})
	return keys
}
