package components

import (
	"fmt"
	"regexp"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// permitted fields can be changed, with those below. The others decide which program runs, as which user, and with
// which rights on a node: writing the KubeVirt object must not grant these (decision 592).
var permitted = regexp.MustCompile(`^(` + or(
	`\.metadata\.annotations\..+`,
	`\.spec\.(replicas|revisionHistoryLimit|progressDeadlineSeconds)`,
	`\.spec\.updateStrategy\.rollingUpdate\.(maxUnavailable|maxSurge)`,
	`\.spec\.template\.metadata\.annotations\..+`,
	`\.spec\.template\.spec\.(priorityClassName|terminationGracePeriodSeconds)`,
	`\.spec\.template\.spec\.(nodeSelector|tolerations|affinity|topologySpreadConstraints|imagePullSecrets)(\W.*)?`,
	`\.spec\.template\.spec\.(containers|initContainers)\[name="[a-z0-9-]+"\]\.(`+or(
		`imagePullPolicy`, `args`, `resources(\..+)?`, `env\[name="(GOGC|GOMEMLIMIT|GOMAXPROCS|DRYDOCK_ACCEL)"\](\.(name|value))?`,
	)+`)`,
) + `)$`)

// addable are fields that it can add but not change: others find the pods by labels.
var addable = regexp.MustCompile(`^\.(spec\.template\.)?metadata\.labels\..+$`)

func or(patterns ...string) string {
	out := "(" + patterns[0] + ")"
	for _, p := range patterns[1:] {
		out += "|(" + p + ")"
	}
	return out
}

func permit(added, modified *fieldpath.Set) error {
	refused := func(path string, allowed ...*regexp.Regexp) bool {
		return path == recordPath || !slices.ContainsFunc(allowed, func(r *regexp.Regexp) bool { return r.MatchString(path) })
	}
	wrong := slices.DeleteFunc(paths(added), func(path string) bool { return !refused(path, permitted, addable) })
	wrong = append(wrong, slices.DeleteFunc(paths(modified), func(path string) bool { return !refused(path, permitted) })...)
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the KubeVirt object can't set %s; change the manifest", wrong[0])
}

// recordPath is the annotation that only Manager may write.
const recordPath = ".metadata.annotations." + ReplacedAnnotation
