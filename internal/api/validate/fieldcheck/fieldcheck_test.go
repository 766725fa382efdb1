package fieldcheck

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The manifests of package validate's testdata show the messages of an object's fields; these are the rules of a single
// field.
func TestFields(t *testing.T) {
	path := field.NewPath("spec")
	seen := map[string]bool{}
	for name, c := range map[string]struct {
		errs field.ErrorList
		want string
	}{
		"one of the allowed values":              {OneOf("b", path, "a", "b"), ""},
		"no value":                               {OneOf("", path, "a"), ""},
		"a value that is not allowed":            {OneOf("c", path, "a", "b"), `spec: Unsupported value: "c": supported values: "a", "b"`},
		"no value, but one is required":          {RequiredOneOf("", path, []string{"a", "b"}), "spec: Required value: must be one of a, b"},
		"a pull policy":                          {PullPolicy(corev1.PullNever, path), ""},
		"another pull policy":                    {PullPolicy("Sometimes", path), `spec: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`},
		"one choice":                             {ExactlyOne(path, []string{"a"}, "a or b"), ""},
		"no choice":                              {ExactlyOne(path, nil, "a or b"), "spec: Required value: a or b"},
		"two choices":                            {ExactlyOne(path, []string{"a", "b"}, "a or b"), "spec.b: Forbidden: can't be set beside a: a or b"},
		"a value, an absent one, and it again":   {append(append(Unique(seen, "a", path), Unique(seen, "", path)...), Unique(seen, "a", path)...), `spec: Duplicate value: "a"`},
		"a value that matches":                   {Pattern("12", path, regexp.MustCompile(`^\d+$`), "must be digits"), ""},
		"an absent value need not match":         {Pattern("", path, regexp.MustCompile(`^\d+$`), "must be digits"), ""},
		"a value that does not match":            {Pattern("x", path, regexp.MustCompile(`^\d+$`), "must be digits"), `spec: Invalid value: "x": must be digits`},
		"a quantity":                             {Quantity(resource.MustParse("1Gi"), path, nil), ""},
		"a wrong quantity":                       {Quantity(resource.MustParse("1Gi"), path, errors.New("too little")), `spec: Invalid value: "1Gi": too little`},
		"a name":                                 {RequiredName("a.b", path, "names it"), ""},
		"no name":                                {RequiredName("", path, "names it"), "spec: Required value: names it"},
		"a subdomain is no label":                {DNSLabel("a.b", path), `spec: Invalid value: "a.b": must not contain dots`},
		"a label selector without a value":       {LabelSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In"}}}, path), "spec.matchExpressions[0].values: Required value"},
		"no label selector":                      {LabelSelector(nil, path), ""},
		"a spread without a skew and a topology": {TopologySpread(&corev1.TopologySpreadConstraint{}, path), "spec.maxSkew: Invalid value: 0: must be greater than zero, spec.topologyKey: Required value"},
	} {
		got := ""
		if len(c.errs) > 0 {
			got = strings.Trim(c.errs.ToAggregate().Error(), "[]")
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Kubernetes finds them in random order.
func TestErrorsAboutAMapAreInOneOrder(t *testing.T) {
	wrong := map[string]string{"a b": "", "c d": "", "e f": "", "g h": ""}
	first := Labels(wrong, field.NewPath("labels")).ToAggregate().Error() + Annotations(wrong, field.NewPath("annotations")).ToAggregate().Error()
	for range 20 {
		again := Labels(wrong, field.NewPath("labels")).ToAggregate().Error() + Annotations(wrong, field.NewPath("annotations")).ToAggregate().Error()
		if again != first {
			t.Fatalf("the errors are %s, and then %s", first, again)
		}
	}
}

func TestNodePlacement(t *testing.T) {
	seconds := int64(5)
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
	errs := NodePlacement(map[string]string{"a b": ""}, affinity, []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}, field.NewPath("spec"))
	var paths []string
	for _, err := range errs {
		paths = append(paths, err.Field)
	}
	const want = "spec.nodeSelector spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms spec.tolerations[0].effect"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("the errors are %v, want those of %s", errs, want)
	}
	if errs := NodePlacement(nil, nil, nil, field.NewPath("spec")); len(errs) > 0 {
		t.Errorf("no placement is refused: %v", errs)
	}
}
