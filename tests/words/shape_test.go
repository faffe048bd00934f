package words_test

import "strings"

// set returns a set of words.
func set(list string) map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		words[word] = true
	}
	return words
}

// pairs are unclear shapes of two words: the second, and the words that make it one.
var pairs = map[string]map[string]bool{
	"what": set("is are return returns say says has have read reads give gives keep keeps with without of by for to from than on in after before until at more all because beside"),
	"of":   set("that those such"), "that": set("that those such"), "whose": set("that those such"),
	"which": set("that those such of by from in to after before behind with for on under beside below at"),
	"whom":  set("of by from in to after before behind with for on under beside below at"),
	"one":   set("that"),
	"it":    set("else"), "they": set("else"), "the": set("else"), "a": set("else"),
}

// conjunctions come before a "who" that means "the caller that".
var conjunctions = set("and or but since than of by to for whether")

// shape returns the unclear shape in a sentence, "" if there is none: a few words that rarely occur in other projects.
func shape(sentence string) string {
	fields := strings.Fields(strings.ToLower(sentence))
	if len(fields) == 0 || strings.HasSuffix(fields[len(fields)-1], "?") { // questions are clear
		return ""
	}
	for i, field := range fields {
		word := head(field)
		var last, before string // "" behind punctuation
		if i > 0 {
			last = tail(fields[i-1])
		}
		if i > 1 {
			before = tail(fields[i-2])
		}
		if pairs[word][last] || triple(before, last, word) || isWho(fields, i) ||
			i > 0 && word == "else" && strings.HasSuffix(fields[i-1], ";") {
			return strings.Join(fields[max(0, i-2):min(len(fields), i+2)], " ")
		}
	}
	return ""
}

// triple reports whether words are an unclear shape of up to three.
func triple(before, last, word string) bool {
	switch word {
	case "likewise":
		return true
	case "of", "that", "which", "whose":
		return before == "the" && last == "one"
	case "is", "was", "does", "did":
		return before == "as" && (last == "it" || last == "they" || last == "one")
	case "one":
		return before == "such" && last == "a"
	case "be":
		return last == "to" && (before == "is" || before == "are" || before == "was" || before == "were")
	}
	return false
}

// isWho reports whether a word is a "who" that means "the caller that".
func isWho(fields []string, at int) bool {
	if head(fields[at]) != "who" || at+1 == len(fields) {
		return false
	}
	next := head(fields[at+1])
	if !strings.HasSuffix(next, "s") && next != "may" && next != "can" {
		return false
	}
	if at == 0 || fields[at] != "who" {
		return true
	}
	last := fields[at-1]
	return conjunctions[tail(last)] || strings.ContainsAny(last[len(last)-1:], ".;:,(")
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c == '_' || c >= '0' && c <= '9' }

// head returns the leading letters of a field, after quotes and brackets.
func head(field string) string {
	field = strings.TrimLeft(field, "(\"'`*")
	end := 0
	for end < len(field) && isLetter(field[end]) {
		end++
	}
	return field[:end]
}

// tail returns the trailing letters of a field.
func tail(field string) string {
	begin := len(field)
	for begin > 0 && isLetter(field[begin-1]) {
		begin--
	}
	return field[begin:]
}
