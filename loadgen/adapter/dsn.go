package adapter

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// isURL reports whether a connection string is a URL, as libpq does.
func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// splitURL takes the passwords out of a URL, and leaves all else of it as it is: libpq's URLs are none of RFC 3986, for
// they have several hosts, and sockets' folders in the place of one. Users end at the first @ that no / comes before.
func splitURL(dsn string) (rest string, password bool) {
	scheme, rest, _ := strings.Cut(dsn, "://")
	users := ""
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		users, _, password = strings.Cut(rest[:i], ":")
		users, rest = users+"@", rest[i+1:]
	}
	place, query, hasQuery := strings.Cut(rest, "?")
	var kept []string
	for _, parameter := range strings.Split(query, "&") {
		key, _, _ := strings.Cut(parameter, "=")
		if decoded, err := url.PathUnescape(key); err == nil && strings.TrimSpace(decoded) == "password" {
			password = true
			continue
		}
		kept = append(kept, parameter)
	}
	rest = scheme + "://" + users + place
	if hasQuery && len(kept) > 0 {
		rest += "?" + strings.Join(kept, "&")
	}
	return rest, password
}

// SplitPassword takes the password out of a PostgreSQL connection string (key=value pairs or
// URL), because arguments are seen by every user of the machine. The password is "" if the
// string has none. Another secret in the string is an error, as libpq has no other place for it than the string or a
// service's file. An error never repeats the string.
func SplitPassword(dsn string) (rest, password string, err error) {
	if rest, password, err = splitPassword(dsn); err != nil {
		return "", "", err
	}
	for key := range parameters(rest) {
		if strings.HasSuffix(key, "password") || strings.HasSuffix(key, "secret") || key == "scram_client_key" || key == "scram_server_key" {
			return "", "", fmt.Errorf("connection string: %s would be among the tool's arguments, which every user of the machine can read: put it into a service file, and service=NAME here", key)
		}
	}
	return rest, password, nil
}

func splitPassword(dsn string) (rest, password string, err error) {
	if isURL(dsn) {
		rest, has := splitURL(dsn)
		if !has {
			return dsn, "", nil
		}
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return "", "", refusal(dsn)
		}
		return rest, config.Password, nil
	}
	if !strings.Contains(dsn, "=") {
		return dsn, "", nil // a database name
	}
	pairs, err := keyValues(dsn)
	if err != nil {
		return "", "", err
	}
	var kept []string
	for _, pair := range pairs {
		if pair[0] == "password" {
			password = pair[1]
			continue
		}
		kept = append(kept, pair[0]+"="+quoted(pair[1]))
	}
	return strings.Join(kept, " "), password, nil
}

// quoted is a value as it stands among libpq's key = 'value' pairs.
func quoted(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// blanks are what separates keys and values, for libpq and pgx.
const blanks = " \t\n\r\v\f"

// keyValues splits libpq's key = 'value' pairs: blanks around the sign are allowed, a value with
// blanks is quoted, and a backslash escapes; at the very end it is dropped.
func keyValues(s string) (pairs [][2]string, err error) {
	for s = strings.TrimLeft(s, blanks); s != ""; s = strings.TrimLeft(s, blanks) {
		key, rest, ok := strings.Cut(s, "=")
		key = strings.TrimRight(key, blanks)
		if !ok || key == "" || strings.ContainsAny(key, blanks) {
			return nil, fmt.Errorf("connection string: expected key=value")
		}
		s = strings.TrimLeft(rest, blanks)
		quoted := strings.HasPrefix(s, "'")
		if quoted {
			s = s[1:]
		}
		var value strings.Builder
		i, closed := 0, !quoted
		for ; i < len(s); i++ {
			c := s[i]
			if c == '\\' {
				if i++; i < len(s) {
					value.WriteByte(s[i])
				}
				continue
			}
			if quoted && c == '\'' {
				i++
				closed = true
				break
			}
			if !quoted && strings.IndexByte(blanks, c) >= 0 {
				break
			}
			value.WriteByte(c)
		}
		if !closed {
			return nil, fmt.Errorf("connection string: a quoted value of %s is not closed", key)
		}
		pairs, s = append(pairs, [2]string{key, value.String()}), s[min(i, len(s)):]
	}
	return pairs, nil
}
