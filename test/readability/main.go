// Readability prints figures about the readability of the code: words of comments, functions that are used once,
// and the largest types, packages and functions. Tests and generated files don't count. It must enforce nothing:
// the goals are the project's.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: readability [FOLDER...]\n\nFOLDER is \".\" unless it is given.\n")
	}
	flag.Parse()
	folders := flag.Args()
	if len(folders) == 0 {
		folders = []string{"."}
	}
	var code codebase
	for _, folder := range folders {
		if err := code.read(os.DirFS(folder)); err != nil {
			fmt.Fprintf(os.Stderr, "reading the source in %s: %v\n", folder, err)
			os.Exit(1)
		}
	}
	if err := report(os.Stdout, code.figures()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(w io.Writer, figures []figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		fmt.Fprintf(table, "%s\t%s\tgoal ≤ %s\t%s\n", f.name, f.value, f.goal, f.where)
	}
	return table.Flush()
}
