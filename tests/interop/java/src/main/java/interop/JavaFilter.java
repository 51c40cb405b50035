package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/** RocketMQ's own evaluator of SQL92 expressions. */
final class JavaFilter {
    private JavaFilter() {}

    /**
     * Evaluate each of {@code expressions} for each of {@code properties}.
     *
     * <p>The result has a text for each expression: "refused" when it does not compile, else one
     * letter for each set of properties, T(rue), F(alse), N(ull), or X for an exception.
     */
    static Object verdicts(JSONObject command) {
        List<Map<String, String>> sets = new ArrayList<>();
        JSONArray properties = command.getJSONArray("properties");
        for (int i = 0; i < properties.size(); i++) {
            Map<String, String> set = new HashMap<>();
            properties.getJSONObject(i).forEach((name, value) -> set.put(name, (String) value));
            sets.add(set);
        }
        List<String> results = new ArrayList<>();
        for (Object expression : command.getJSONArray("expressions")) {
            results.add(verdicts((String) expression, sets));
        }
        return results;
    }

    private static String verdicts(String text, List<Map<String, String>> sets) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (MQFilterException e) {
            return "refused";
        }
        StringBuilder letters = new StringBuilder();
        for (Map<String, String> set : sets) {
            letters.append(verdict(expression, set));
        }
        return letters.toString();
    }

    private static char verdict(Expression expression, Map<String, String> properties) {
        Object value;
        try {
            value = expression.evaluate(new MessageEvaluationContext(properties));
        } catch (Exception e) {
            return 'X';
        }
        return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : 'F';
    }
}
